"""Where actors are: each at a port call, by the answers that it was given so far.

What an actor does next follows from those answers and the times when it was given them, and from
nothing else. So its code runs once for each such history, and to have it go on from an earlier
place the answers are given to it once more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from lamplighter.core.clock_offset import Bounds
from lamplighter.core.model import Execution, Token
from lamplighter.memory import Counts
from lamplighter.ports import Leases, Outgoing, Ports
from lamplighter.sim.faults import PIECEWISE, Crash
from lamplighter.sim.stills import Values
from lamplighter.sim.wire import PORTS

IDLE: Final = "idle"
SLEEP: Final = "sleep"
# Nobody changes a layout or a limit here, and what work asks for itself comes by the tick.
_CONSTANT: Final = {"control.layouts", "permits.limits"}
_LEFT_OUT: Final = "queue.hand_out"
_PRESENT: Final = 500
_SETS: Final = (set, frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an actor waits for: the answer to a port call, or a time, or a whim of its own."""

    what: str
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of it."""

    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something that an actor did by itself, and that is looked at: which, and about what."""

    what: str
    about: Any


class Hands:
    """What an actor has beside its ports."""

    def __init__(self, name: str, wait: Callable[["Hands", Ask], Any]) -> None:
        self.name = name
        self.said: list[Said] = []
        self.is_over = False
        self._wait = wait

    def wait(self, ask: Ask) -> Any:
        """Have others their turn until there is an answer."""
        if self.is_over:
            raise Crash
        return self._wait(self, ask)

    def idle(self) -> None:
        """Wait for as long as one likes: whatever else may happen does, or does not."""
        self.wait(Ask(what=IDLE))

    def say(self, what: str, about: object) -> None:
        """Tell of what is about to be done."""
        self.said.append(Said(what=what, about=about))


Does = Callable[[Ports, Hands], object]


@dataclass(frozen=True, kw_only=True)
class Cast:
    """An actor: its name, what kind it is, and what it does."""

    name: str
    kind: str
    does: Does
    receipt: str | None = None
    """Of the message that it was called for."""


@dataclass(eq=False, slots=True, kw_only=True)
class Place:
    """Where one actor is."""

    number: int
    cast: Cast
    asks: Ask | None
    """None: it has ended."""
    said: Sequence[Said]
    """What it did by itself on the way here."""
    at: datetime
    """Since when it is here."""
    before: "Place | None"
    answer: Answer | None
    """What brought it here from there."""
    error: BaseException | None = None
    """By what it ended that it did not catch."""
    after: dict[object, "Place"] = field(default_factory=dict)

    @property
    def asked(self) -> Ask:
        """What it asks; raises ValueError where it has ended."""
        if self.asks is None:
            raise ValueError(f"{self.cast.name} has ended")
        return self.asks


class Players:
    """All actors of one walk, each at as many places as were reached."""

    def __init__(self, ports: Ports, values: Values) -> None:
        self._ports = ports
        self._values = values
        self._hub = getcurrent()
        self._now = ports.clock.now()
        self._began = self._now - timedelta(seconds=ports.clock.monotonic())
        self._at: dict[Place, greenlet] = {}
        """Those that are there in person, and need not be brought."""
        self._hands: dict[greenlet, Hands] = {}
        self._next = count().__next__

    def enter(self, cast: Cast, now: datetime) -> Place:
        """Where an actor is that has been told nothing."""
        lives, place = self._brought_in(cast, now)
        self._keep(place, lives)
        return place

    def go_on(self, place: Place, answer: Answer, now: datetime) -> Place:
        """Where the actor is once it has its answer, then."""
        key = (self.key(answer), now)
        known = place.after.get(key)
        if known is not None:
            return known
        lives = self._at.pop(place, None) or self._bring(place)
        asks, error = self._told(lives, answer, now)
        following = Place(
            number=self._next(),
            cast=place.cast,
            asks=asks,
            said=self._heard(lives),
            at=now,
            before=place,
            answer=answer,
            error=error,
        )
        place.after[key] = following
        self._keep(following, lives)
        return following

    def _keep(self, place: Place, lives: greenlet) -> None:
        if place.asks is None:
            del self._hands[lives]
            return
        self._at[place] = lives
        if len(self._at) > _PRESENT:
            first = next(iter(self._at))
            del self._hands[self._at.pop(first)]

    def _bring(self, place: Place) -> greenlet:
        """Another one that was told the same."""
        way: list[tuple[Answer, datetime]] = []
        while place.before is not None and place.answer is not None:
            way.append((place.answer, place.at))
            place = place.before
        lives, _ = self._brought_in(place.cast, place.at)
        for answer, at in reversed(way):
            self._told(lives, answer, at)
            self._heard(lives)
        return lives

    def _brought_in(self, cast: Cast, now: datetime) -> tuple[greenlet, Place]:
        lives = greenlet(self._live, self._hub)
        hands = Hands(cast.name, self._wait)
        self._hands[lives] = hands
        asks, error = self._told(lives, (cast, hands), now)
        place = Place(
            number=self._next(),
            cast=cast,
            asks=asks,
            said=self._heard(lives),
            at=now,
            before=None,
            answer=None,
            error=error,
        )
        return lives, place

    def _told(
        self, lives: greenlet, what: object, now: datetime
    ) -> tuple[Ask | None, BaseException | None]:
        self._now = now
        came = lives.switch(what)
        return (came, None) if isinstance(came, Ask) else (None, came)

    def _heard(self, lives: greenlet) -> Sequence[Said]:
        hands = self._hands[lives]
        said, hands.said = tuple(hands.said), []
        return said

    def _live(self, called: tuple[Cast, Hands]) -> BaseException | None:
        cast, hands = called
        try:
            cast.does(self._ports_of(cast, hands), hands)
        except (Exception, Crash) as error:  # noqa: BLE001 -- whatever it was, it is this actor's end
            return error
        return None

    def _wait(self, hands: Hands, ask: Ask) -> Any:
        try:
            answer = self._hub.switch(ask)
        except GreenletExit:
            # Nobody goes on from here any more: what it would do on its way out is not done.
            hands.is_over = True
            raise
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return answer.value

    def _ports_of(self, cast: Cast, hands: Hands) -> Ports:
        """The ports as this actor has them, who is a process of its own."""
        return replace(
            self._ports,
            clock=_Clock(self, hands),
            clock_offset=_Offset(),
            chance=_Chance(cast.name),
            telemetry=_Telling(hands=hands),
            leases=Leases(),
            **{name: _Port(name, getattr(self._ports, name), hands) for name in PORTS},  # type: ignore[arg-type]
        )

    @property
    def now(self) -> datetime:
        """The time of whoever goes on."""
        return self._now

    def monotonic(self, at: datetime) -> float:
        """An instant in seconds since it all began."""
        return (at - self._began).total_seconds()

    def key(self, answer: Answer) -> object:
        """The same for two answers only if they are equal."""
        if answer.error is not None:
            return type(answer.error), str(answer.error)
        return self._values.frozen(answer.value)


class _Port:
    """One port of one actor."""

    def __init__(self, name: str, real: object, hands: Hands) -> None:
        self._name, self._real, self._hands = name, real, hands

    def __getattr__(self, method: str) -> Any:
        what = f"{self._name}.{method}"
        if what in _CONSTANT:
            return getattr(self._real, method)
        if what == _LEFT_OUT:
            return lambda *_, **__: None
        return self._piecewise(what) if what in PIECEWISE else self._whole(what)

    def _whole(self, what: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            given = tuple(sorted(one) if isinstance(one, _SETS) else one for one in given)
            return self._hands.wait(Ask(what=what, given=given, named=named))

        return call

    def _piecewise(self, what: str) -> Callable[..., Any]:
        """Each item by itself: others may have their turn between two, and a crash strike."""

        def call(items: Sequence[Any], **named: Any) -> Any:
            asks = (Ask(what=what, given=([one],), named=named) for one in items)
            answers = [self._hands.wait(ask) for ask in asks]
            return [answer[0] for answer in answers] if what == "executions.put" else None

        return call


class _Clock:
    """`ports.Clock` of whoever goes on."""

    def __init__(self, players: Players, hands: Hands) -> None:
        self._players, self._hands = players, hands

    def now(self) -> datetime:
        return self._players.now

    def monotonic(self) -> float:
        return self._players.monotonic(self._players.now)

    def sleep(self, duration: timedelta) -> None:
        self._hands.wait(Ask(what=SLEEP, given=(self._players.now + duration,)))


class _Offset:
    """`ports.ClockOffset` of a host whose clock is right."""

    @staticmethod
    def bounds() -> Bounds | None:
        return Bounds(low=timedelta(0), high=timedelta(0))

    def measure(self) -> None:
        """Nothing is left to be found out."""


class _Chance:
    """`ports.Chance` of one actor, the same each time that it is brought to a place."""

    def __init__(self, name: str) -> None:
        self._random = Random(name)

    def hash(self) -> int:
        return self._random.getrandbits(70)

    def token(self) -> Token:
        return Token(f"{self._random.getrandbits(128):032x}")

    @staticmethod
    def jitter() -> float:
        return 1.0


@dataclass(kw_only=True)
class _Telling(Counts):
    """`ports.Telemetry` of one actor: what the promises are about is told on."""

    hands: Hands

    def finished(self, execution: Execution) -> None:
        self.hands.say("finished", execution)

    def recovered(self, execution: Execution, *, reason: str) -> None:
        self.hands.say("recovered", (execution, reason))


def sends_of(ask: Ask) -> Outgoing | None:
    """The message that a call sends; None: it sends none."""
    return ask.given[0][0] if ask.what == "queue.send" else None
