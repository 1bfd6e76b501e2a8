"""A year of payroll in a second, and all that may go wrong in it.

`scheduler` comes with Lamplighter: a whole one in memory, whose clock these tests move.
"""

from collections import Counter
from zoneinfo import ZoneInfo

import pytest

from lamplighter.testing import Scheduler
from payroll import tasks
from payroll.bank import BankInMemory
from payroll.schedules import CLOSE_DAY, SALARIES

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> BankInMemory:
    bank = BankInMemory()
    monkeypatch.setattr(tasks, "bank", bank)
    return bank


def closed_days(scheduler: Scheduler) -> Counter[str]:
    """How often each day was closed."""
    return Counter(
        write["Put"]["Item"]["day"]["S"]  # type: ignore[index]
        for write in scheduler.committed
    )


def test_a_year_has_twelve_paydays_and_its_days_are_closed(
    scheduler: Scheduler, bank: BankInMemory
) -> None:
    salaries, close_day = scheduler.create(SALARIES), scheduler.create(CLOSE_DAY)

    scheduler.advance(days=365)

    assert len(bank.payments) == bank.asked == 12 * 2
    assert len(scheduler.runs("close_day")) == len(closed_days(scheduler)) == 365
    assert (scheduler.ledger(salaries).fired, scheduler.ledger(close_day).fired) == (12, 365)
    scheduler.check()


def test_a_day_is_closed_once_when_the_clocks_change(scheduler: Scheduler) -> None:
    scheduler.create(CLOSE_DAY)
    scheduler.advance(days=365)

    starts = [run.started_at.astimezone(BERLIN) for run in scheduler.runs("close_day")]
    unusual = [f"{start:%m-%d %H:%M}" for start in starts if f"{start:%H:%M}" != "02:30"]

    assert len({start.date() for start in starts}) == 365
    assert unusual == ["03-29 03:00"]  # there is no 02:30; in October, of two, it is the first


def test_everybody_is_paid_once_though_the_worker_dies_when_it_has_paid(
    scheduler: Scheduler, bank: BankInMemory
) -> None:
    job = scheduler.create(SALARIES)
    scheduler.kill_worker("pay_salaries", "after", times=2)

    scheduler.advance(days=31)

    assert [run.outcome for run in scheduler.runs("pay_salaries")] == [None, None, "Succeeded"]
    assert len(bank.payments) == bank.asked == 2
    assert [row.state for row in scheduler.executions(job)] == ["SUCCEEDED", "SCHEDULED"]
    scheduler.check()


def test_after_a_day_without_workers_nobody_is_forgotten(
    scheduler: Scheduler, bank: BankInMemory
) -> None:
    salaries, close_day = scheduler.create(SALARIES), scheduler.create(CLOSE_DAY)
    scheduler.advance(days=27)

    with scheduler.outage("workers"):
        scheduler.advance(days=1)
        assert bank.payments == {}
    scheduler.advance(minutes=10)

    assert len(bank.payments) == 2
    assert scheduler.ledger(salaries).fired == 1
    assert [*closed_days(scheduler).values()] == [1] * scheduler.ledger(close_day).fired
    scheduler.check()


def test_after_two_days_without_dispatch_each_day_is_closed(scheduler: Scheduler) -> None:
    job = scheduler.create(CLOSE_DAY)
    scheduler.advance(days=3)

    with scheduler.outage("scheduler"):
        scheduler.advance(days=2)
    scheduler.advance(days=1)

    assert [*closed_days(scheduler).values()] == [1] * 6
    assert scheduler.ledger(job).missed == 0
    scheduler.check()


def test_whatever_goes_wrong_in_a_quarter_money_and_books_are_right(
    scheduler: Scheduler, bank: BankInMemory
) -> None:
    salaries, close_day = scheduler.create(SALARIES), scheduler.create(CLOSE_DAY)
    scheduler.faults("all", often=3)

    scheduler.advance(days=91)

    scheduler.check()
    assert sum(scheduler.struck.values()) > 50
    paid = [row for row in scheduler.executions(salaries) if row.state == "SUCCEEDED"]
    assert {reference.split("/")[0] for reference in bank.payments} >= {row.id for row in paid}
    assert len(bank.payments) == 2 * len(scheduler.executions(salaries)[:-1])
    days = closed_days(scheduler)
    succeeded = [row for row in scheduler.executions(close_day) if row.state == "SUCCEEDED"]
    assert {*days.values()} == {1}
    assert len(days) == len(succeeded)
