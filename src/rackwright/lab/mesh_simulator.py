"""A cluster in a heap: thousands of the real membership machines under a virtual clock and seeded weather.

Nothing of the protocol is here. This is the world around it: messages take time and get lost, hosts fall silent,
processes are killed, stopped and slowed, networks are cut. One seed gives one history.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import SharedBase
from rackwright.mesh.membership.messages import Message, encoded_size
from rackwright.mesh.membership.swim import Dial, Event, EventKind, Output, Send, Swim, SwimConfig

_GIVE_UP = 10.0  # seconds after which a transport stops to retry a reliable message
_FIRST_RETRY = 0.2
_INBOX = 10_000
_AFTERMATH = 15.0  # what is believed this soon after a fault is the fault's doing


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to a message. A reliable one is not lost but late: each loss costs a retransmission."""

    loss: float = 0.0
    fastest: float = 0.0002
    slowest: float = 0.001


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one member came to believe of another, and when."""

    time: float
    observer: str
    event: Event


class Host:
    """One simulated server: its machine, and what is wrong with it."""

    __slots__ = ("clock_step", "inbox", "killed", "name", "paused", "silent", "slowness", "swim", "troubled", "wake")

    def __init__(self, name: str, swim: Swim) -> None:
        self.name = name
        self.swim = swim
        self.wake = math.inf
        self.silent = False  # power cut: no answer of any kind
        self.killed = False  # the process is gone; its kernel refuses connections
        self.paused = False
        self.slowness = 0.0
        self.troubled = -math.inf  # when its last fault ended
        self.clock_step = 0.0
        self.inbox: list[Message] = []

    @property
    def running(self) -> bool:
        return not (self.silent or self.killed)


_Action = Callable[[], None]
_Happening = Host | Message | _Action


class Simulator:
    def __init__(self, seed: int, config: SwimConfig | None = None, weather: Weather | None = None) -> None:
        self.config = config or SwimConfig()
        self.weather = weather or Weather()
        self.now = 0.0
        self.hosts: dict[str, Host] = {}
        self.sightings: list[Sighting] = []
        self.false_deaths: list[Sighting] = []
        self.messages = 0
        self.bytes = 0
        self.tap: Callable[[float, Send], None] | None = None  # told of every message sent, for who measures
        self._rng = random.Random(seed)  # noqa: S311 - a simulation must be repeatable, not secret
        self._heap: list[tuple[float, int, str, _Happening]] = []
        self._serial = itertools.count()
        self._moved: set[str] = set()
        self._side: dict[str, int] = {}  # which side of a partition; empty when there is none

    # -- building ------------------------------------------------------------------------------------------------------

    def start_joined(self, count: int) -> None:
        """`count` members that know each other already; their tables share all that is equal."""
        records = [
            MemberRecord(f"n{number}", f"10.0.0.0:{number % 65535 + 1}", incarnation=1, session=1)
            for number in range(count)
        ]
        base = SharedBase(Entry(record, State.ALIVE, 0.0) for record in records)
        for record in records:
            self._boot(record, base, ())

    def join(self, name: str, through: str, address: str | None = None) -> None:
        """A new member, or one that comes back: it knows nothing but the one it joins through."""
        before = self.hosts.get(name)
        if address is None:
            address = before.swim.me.address if before is not None else f"10.1.0.0:{len(self.hosts)}"
        elif before is not None and before.swim.me.address != address:
            self._moved.add(name)
        session = before.swim.me.session + 1 if before is not None else 1
        self._boot(MemberRecord(name, address, session=session), None, (self.hosts[through].swim.me,))

    def _boot(self, me: MemberRecord, base: SharedBase | None, seeds: Iterable[MemberRecord]) -> None:
        rng = random.Random(self._rng.getrandbits(64))  # noqa: S311 - as above
        swim = Swim(self.config, me, rng, base)
        host = self.hosts[me.name] = Host(me.name, swim)
        self._do(host, swim.joined(self.now, seeds))

    # -- faults --------------------------------------------------------------------------------------------------------

    def power_off(self, name: str) -> None:
        self.hosts[name].silent = True

    def kill(self, name: str) -> None:
        """Kill -9: the kernel closes its connections, and every peer that kept one sees it."""
        self.hosts[name].killed = True
        self.reset_connections(name)

    def reset_connections(self, name: str) -> None:
        """Every kept connection to it breaks, be it alive or not."""
        for peer in self.hosts.values():
            if peer.name != name and peer.running and self._reaches(name, peer.name):
                self._later(self._delay(), peer.name, partial(self._hint, peer, peer.swim.connection_closed, name))

    def pause(self, name: str) -> None:
        self.hosts[name].paused = True

    def wake(self, name: str) -> None:
        """What came in meanwhile lies in the socket, and the timers are all late."""
        host = self.hosts[name]
        host.paused = False
        host.troubled = self.now
        host.wake = math.inf
        inbox, host.inbox = host.inbox, []
        self._do(host, host.swim.tick(self.now + host.clock_step))
        for message in inbox:
            self._do(host, host.swim.receive(self.now + host.clock_step, message.sender, message))

    def slow(self, name: str, seconds: float) -> None:
        """Everything it hears and says takes this much longer."""
        self.hosts[name].slowness = seconds

    def step_clock(self, name: str, seconds: float) -> None:
        host = self.hosts[name]
        host.clock_step += seconds
        host.wake = math.inf
        self._plan_wake(host)

    def partition(self, *sides: Iterable[str]) -> None:
        """Hosts named in no side are one more side."""
        self.heal()
        self._side = {name: number for number, side in enumerate(sides, start=1) for name in side}

    def heal(self) -> None:
        if self._side:
            self._side = {}
            for host in self.hosts.values():
                host.troubled = self.now

    def leave(self, name: str) -> None:
        host = self.hosts[name]
        self._do(host, host.swim.leave(self.now + host.clock_step))

    def set_metadata(self, name: str, metadata: bytes) -> None:
        host = self.hosts[name]
        self._do(host, host.swim.set_metadata(self.now + host.clock_step, metadata))

    # -- running -------------------------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        heap, hosts = self._heap, self.hosts
        while heap and heap[0][0] <= end:
            time, _, name, happening = heapq.heappop(heap)
            self.now = time
            if isinstance(happening, Message):
                host = hosts[name]
                if host.silent or host.killed:
                    continue
                if host.paused:
                    if len(host.inbox) < _INBOX:
                        host.inbox.append(happening)
                    continue
                self._do(host, host.swim.receive(time + host.clock_step, happening.sender, happening))
            elif isinstance(happening, Host):
                if happening.wake != time or not happening.running or happening.paused:
                    continue
                happening.wake = math.inf
                self._do(happening, happening.swim.tick(time + happening.clock_step))
            else:
                happening()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float, step: float = 0.1) -> float:
        """Run until the condition holds, looking every `step`; the seconds it took, or infinity."""
        start = self.now
        while not condition():
            if self.now - start >= limit:
                return math.inf
            self.run_for(step)
        return self.now - start

    def agreed(self) -> bool:
        """Whether everyone who runs holds exactly those for alive that run."""
        truth = {name for name, host in self.hosts.items() if host.running and not host.swim.has_left}
        for name in truth:
            seen = {entry.name: entry.state for entry in self.hosts[name].swim.members()}
            if any(
                (state is State.ALIVE) != (other in truth) or state is State.SUSPECT for other, state in seen.items()
            ):
                return False
            if not truth <= seen.keys():
                return False
        return True

    def holds(self, observer: str, member: str) -> State | None:
        entry = self.hosts[observer].swim.member(member)
        return entry.state if entry is not None else None

    # -- the world -----------------------------------------------------------------------------------------------------

    def _do(self, host: Host, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._carry(host, output)
            elif isinstance(output, Event):
                self._saw(host, output)
            else:
                self._dial(host, output)
        self._plan_wake(host)

    def _plan_wake(self, host: Host) -> None:
        deadline = host.swim.next_deadline() - host.clock_step
        if deadline < host.wake:
            # Between two clocks a deadline may round to just before now; time must go on.
            host.wake = deadline if deadline > self.now else self.now + 1e-6
            heapq.heappush(self._heap, (host.wake, next(self._serial), host.name, host))

    def _carry(self, host: Host, send: Send) -> None:
        self.messages += 1
        self.bytes += encoded_size(send.message)
        if self.tap is not None:
            self.tap(self.now, send)
        target = self._at_known_address(host, send.to)
        if target is None or (self._side and not self._reaches(host.name, send.to)):
            return
        weather, chance = self.weather, self._rng.random
        delay = weather.fastest + chance() * (weather.slowest - weather.fastest) + host.slowness + target.slowness
        if weather.loss and chance() < weather.loss:
            if not send.reliable:
                return
            delay += self._retries()
            if delay > _GIVE_UP:
                return
        heapq.heappush(self._heap, (self.now + delay, next(self._serial), send.to, send.message))

    def _retries(self) -> float:
        """TCP's patience: each lost segment is sent again, after twice the time."""
        wait = total = _FIRST_RETRY
        while self._rng.random() < self.weather.loss and total < _GIVE_UP:
            wait *= 2
            total += wait
        return total

    def _dial(self, host: Host, dial: Dial) -> None:
        target = self._at_known_address(host, dial.peer)
        if target is None or target.silent or not self._reaches(host.name, dial.peer):
            return
        # A stopped process still has a kernel that accepts for it.
        answer = host.swim.connection_refused if target.killed else host.swim.connected
        self._later(2 * self._delay(), host.name, partial(self._hint, host, answer, dial.peer))

    def _hint(self, host: Host, hint: Callable[[float, str], list[Output]], peer: str) -> None:
        if host.running and not host.paused:
            self._do(host, hint(self.now + host.clock_step, peer))

    def _saw(self, host: Host, event: Event) -> None:
        sighting = Sighting(self.now, host.name, event)
        self.sightings.append(sighting)
        if event.kind is EventKind.DEAD:
            accused = self.hosts.get(event.member.name)
            if accused is not None and not self._has_a_reason(accused, host):
                self.false_deaths.append(sighting)

    def _has_a_reason(self, accused: Host, observer: Host) -> bool:
        """Whether a fault, now or just before, explains that it was taken for dead."""
        if not accused.running or accused.paused or not self._reaches(accused.name, observer.name):
            return True
        return self.now - max(accused.troubled, observer.troubled) < _AFTERMATH

    def _later(self, delay: float, name: str, action: _Action) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._serial), name, action))

    def _delay(self) -> float:
        return self.weather.fastest + self._rng.random() * (self.weather.slowest - self.weather.fastest)

    def _at_known_address(self, host: Host, name: str) -> Host | None:
        """The transport goes to the address the sender knows; one that moved is not there."""
        target = self.hosts.get(name)
        if name in self._moved and target is not None:
            known = host.swim.member(name)
            if known is not None and known.record.address != target.swim.me.address:
                return None
        return target

    def _reaches(self, one: str, other: str) -> bool:
        return self._side.get(one) == self._side.get(other)
