"""`ports.Queue`: what holds of every implementation, sentence by sentence.

Delays are lower bounds on the queue's own clock, and it is about then: the tests that wait
do so for a second or two of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import zip_longest

import pytest

from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.limits import SQS_MAX_DELAY_S, SQS_MAX_VISIBILITY_S
from lamplighter.core.model import Message
from lamplighter.ports import Outgoing, Received
from tests.contract.worlds import World
from tests.support.rows import id_at, s

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def message(world: World, n: int = 0, *, due_in: timedelta = timedelta(0)) -> Message:
    due_at = world.clock.now() + due_in
    return Message(execution_id=id_at(due_at, n=n), attempt=1, due_at=due_at)


def to(lane: str, messages: Sequence[Message]) -> list[Outgoing]:
    return [Outgoing(queue=lane, message=message) for message in messages]


def send(world: World, *messages: Message, lane: str = "default") -> None:
    world.queue.send(to(lane, messages), now=world.clock.now())


def receive_all(world: World, lane: str = "default") -> list[Received]:
    received: list[Received] = []
    while batch := world.receive(lane):
        received += batch
    return received


def received_ids(world: World, lane: str = "default") -> set[str]:
    return {one.message.execution_id for one in receive_all(world, lane)}


# Sending.


def test_a_message_arrives_as_it_was_sent(world: World) -> None:
    sent = replace(message(world), attempt=3, hops=2, epoch=17, traceparent=TRACE)

    send(world, sent)

    (received,) = receive_all(world)
    assert received.message == sent
    assert (received.queue, received.receive_count) == ("default", 1)


def test_a_message_without_extras_arrives_without_them(world: World) -> None:
    sent = message(world)

    send(world, sent)

    assert [one.message for one in receive_all(world)] == [sent]


def test_more_messages_than_a_batch_takes_all_arrive_in_their_lanes(world: World) -> None:
    default = [message(world, n) for n in range(23)]
    critical = [message(world, n) for n in range(100, 111)]
    alternating = zip_longest(to("default", default), to("critical", critical))
    mixed = [one for pair in alternating for one in pair if one is not None]

    world.queue.send(mixed, now=world.clock.now())

    assert received_ids(world, "default") == {one.execution_id for one in default}
    assert received_ids(world, "critical") == {one.execution_id for one in critical}


def test_sending_nothing_sends_nothing(world: World) -> None:
    world.queue.send([], now=world.clock.now())

    assert receive_all(world) == []


def test_what_is_due_already_is_visible_at_once(world: World) -> None:
    late = message(world, due_in=-s(3600))

    send(world, late)

    assert [one.message for one in receive_all(world)] == [late]


def test_what_is_due_later_stays_invisible_until_about_then(world: World) -> None:
    """S1-Q2."""
    soon, later = message(world, 1), message(world, 2, due_in=s(2))

    send(world, soon, later)

    assert received_ids(world) == {soon.execution_id}
    world.pass_time(s(2.1))
    assert received_ids(world) == {later.execution_id}


def test_the_longest_delay_is_taken(world: World) -> None:
    send(world, message(world, due_in=s(SQS_MAX_DELAY_S)))

    assert receive_all(world) == []


def test_a_delay_of_901_seconds_is_refused_and_nothing_of_the_batch_is_sent(world: World) -> None:
    """O-F14: before anything is lost."""
    messages = [message(world, n) for n in range(11)]
    too_far = message(world, 99, due_in=s(SQS_MAX_DELAY_S + 1))

    with pytest.raises(ValueError, match="901"):
        world.queue.send(to("default", [*messages, too_far]), now=world.clock.now())

    assert receive_all(world) == []


# Hiding.


def test_a_received_message_is_hidden_from_others(world: World) -> None:
    send(world, message(world))
    receive_all(world)

    assert receive_all(world) == []


def test_a_message_reappears_when_its_time_in_hiding_is_over(world: World) -> None:
    """S1-Q2, S4-L5."""
    sent = message(world)
    send(world, sent)
    received = receive_all(world)

    world.queue.hide(received, s(1))

    assert receive_all(world) == []
    world.pass_time(s(1.1))
    (again,) = receive_all(world)
    assert (again.message, again.receive_count) == (sent, 2)


def test_hiding_for_no_time_shows_the_message_at_once(world: World) -> None:
    sent = message(world)
    send(world, sent)

    world.queue.hide(receive_all(world), timedelta(0))

    assert received_ids(world) == {sent.execution_id}


def test_hiding_can_be_prolonged(world: World) -> None:
    send(world, message(world))
    received = receive_all(world)
    world.queue.hide(received, s(1))

    world.queue.hide(received, s(SQS_MAX_VISIBILITY_S))

    world.pass_time(s(1.1))
    assert receive_all(world) == []


def test_more_messages_than_a_batch_takes_are_all_hidden(world: World) -> None:
    sent = [message(world, n) for n in range(13)]
    send(world, *sent)

    world.queue.hide(receive_all(world), timedelta(0))

    assert received_ids(world) == {one.execution_id for one in sent}


def test_hiding_passes_over_what_is_gone_and_hides_the_rest(world: World) -> None:
    gone, there = message(world, 1), message(world, 2)
    send(world, gone, there)
    received = sorted(receive_all(world), key=lambda one: one.message.execution_id)
    world.queue.delete([one for one in received if one.message == gone])

    world.queue.hide(received, timedelta(0))

    assert received_ids(world) == {there.execution_id}


def test_hiding_or_deleting_nothing_does_nothing(world: World) -> None:
    world.queue.hide([], s(30))
    world.queue.delete([])

    assert receive_all(world) == []


# Deleting.


def test_a_deleted_message_never_reappears(world: World) -> None:
    """S1-Q2."""
    sent = [message(world, n) for n in range(13)]
    send(world, *sent)
    received = receive_all(world)
    world.queue.hide(received, timedelta(0))
    received = receive_all(world)

    world.queue.delete(received)

    world.queue.hide(received, timedelta(0))
    assert receive_all(world) == []


def test_deleting_passes_over_what_is_gone_and_deletes_the_rest(world: World) -> None:
    send(world, message(world, 1), message(world, 2))
    received = receive_all(world)
    world.queue.delete(received[:1])

    world.queue.delete(received)

    world.queue.hide(received, timedelta(0))
    assert receive_all(world) == []


# Waiting, and work.


def test_what_is_received_too_often_is_set_aside_and_its_neighbours_are_not(world: World) -> None:
    dead = world.redrive("default", 3)
    poison, good = message(world, n=1), message(world, n=2)
    send(world, poison)

    for count in range(1, 4):
        (received,) = world.receive("default")
        assert (received.message, received.receive_count) == (poison, count)
        world.queue.hide([received], timedelta(0))
    before = dead()
    send(world, good)

    assert received_ids(world) == {good.execution_id}
    assert before == []
    assert dead() == [poison]


def test_what_is_deleted_at_its_last_receive_is_not_set_aside(world: World) -> None:
    dead = world.redrive("default", 1)
    send(world, message(world))

    world.queue.delete(world.receive("default"))

    assert receive_all(world) == []
    assert dead() == []


def test_a_receipt_that_another_receive_has_replaced_deletes_nothing_it_should_not(
    world: World,
) -> None:
    """Whoever is late finds the message in another's hands, or gone: either way no error."""
    send(world, message(world))
    (first,) = world.receive("default")
    world.queue.hide([first], timedelta(0))
    (second,) = world.receive("default")

    world.queue.delete([second])
    world.queue.delete([first])

    assert receive_all(world) == []


def test_those_waiting_are_visible_and_not_taken(world: World) -> None:
    send(world, *(message(world, n) for n in range(4)))
    send(world, message(world, 9, due_in=s(600)))
    send(world, message(world, 10), lane="critical")

    before = world.queue.waiting("default")
    receive_all(world)

    assert before == 4
    assert world.queue.waiting("default") == 0
    assert world.queue.waiting("critical") == 1


def test_each_work_is_handed_out(world: World) -> None:
    works = [
        WorkItem(work=Work(partition=n, kind=kind, generation=n % 3), armed_by=n or None)
        for n in range(12)
        for kind in Kind
    ]

    world.queue.hand_out(iter(works))

    assert set(world.handed_out()) == set(works)


def test_handing_out_nothing_hands_out_nothing(world: World) -> None:
    world.queue.hand_out([])

    assert world.handed_out() == []
