"""A simulated mesh cluster: thousands of the real membership state machines, a virtual clock and a simulated network.

Nothing of the protocol is here. The simulator is the world around it: messages take time and get lost, hosts fall
silent, processes are killed, stopped and slowed, networks are cut. The same seed always gives the same history.
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
_AFTERMATH = 15.0  # seconds after a fault in which a death that a member reports is a consequence of the fault
_LEAVE_SECONDS = 3.0
"""How long a process that leaves goes on at most, so that the others hear of it; as an agent."""


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """What the network does to a message. A reliable message is not lost but late: each loss is a retransmission."""

    loss: float = 0.0
    fastest: float = 0.0002
    slowest: float = 0.001


@dataclass(frozen=True, slots=True)
class Observation:
    """An event at a member about another member, and when it was."""

    time: float
    observer: str
    event: Event


class Host:
    """A simulated server: its membership state machine, and its faults."""

    __slots__ = (
        "clock_step",
        "inbox",
        "killed",
        "last_fault_end",
        "name",
        "paused",
        "silent",
        "slowness",
        "swim",
        "wake",
    )

    def __init__(self, name: str, swim: Swim) -> None:
        self.name = name
        self.swim = swim
        self.wake = math.inf
        self.silent = False  # power cut: no answer of any kind
        self.killed = False  # the process is gone; its kernel refuses connections
        self.paused = False
        self.slowness = 0.0
        self.last_fault_end = -math.inf
        self.clock_step = 0.0
        self.inbox: list[Message] = []

    @property
    def running(self) -> bool:
        return not (self.silent or self.killed)


_Action = Callable[[], None]
_HeapEntry = Host | Message | _Action


class Simulator:
    """The hosts of a cluster, the network between them, and the heap of what happens next."""

    def __init__(
        self, seed: int, config: SwimConfig | None = None, conditions: NetworkConditions | None = None
    ) -> None:
        self.config = config or SwimConfig()
        self.conditions = conditions or NetworkConditions()
        self.now = 0.0
        self.hosts: dict[str, Host] = {}
        self.observations: list[Observation] = []
        self.false_deaths: list[Observation] = []
        self.messages = 0
        self.bytes = 0
        self.tap: Callable[[float, Send], None] | None = None  # called with every message sent, for measurements
        self._rng = random.Random(seed)  # noqa: S311 - a simulation must be repeatable, not secret
        self._heap: list[tuple[float, int, str, _HeapEntry]] = []
        self._serial = itertools.count()
        self._moved: set[str] = set()
        self._side: dict[str, int] = {}  # which side of a partition; empty when there is none

    # -- building ------------------------------------------------------------------------------------------------------

    def start_joined(self, count: int) -> None:
        """Start `count` members that know each other already; their tables share all that is equal."""
        records = [
            MemberRecord(f"n{number}", f"10.0.0.0:{number % 65535 + 1}", incarnation=1, session=1)
            for number in range(count)
        ]
        base = SharedBase(Entry(record, State.ALIVE, 0.0) for record in records)
        for record in records:
            self._boot(record, base, ())

    def join(self, name: str, through: str, address: str | None = None) -> None:
        """Add a new member, or one that comes back. It knows only the member that it joins `through`."""
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
        self._apply(host, swim.joined(self.now, seeds))

    # -- faults --------------------------------------------------------------------------------------------------------

    def power_off(self, name: str) -> None:
        self.hosts[name].silent = True

    def kill(self, name: str) -> None:
        """Kill a process as kill -9 does: the kernel closes its connections, and every peer with one notices."""
        self.hosts[name].killed = True
        self.reset_connections(name)

    def reset_connections(self, name: str) -> None:
        """Break every open connection to a host, whether it is alive or not."""
        for peer in self.hosts.values():
            if peer.name != name and peer.running and self._reaches(name, peer.name):
                self._later(self._delay(), peer.name, partial(self._hint, peer, peer.swim.connection_closed, name))

    def pause(self, name: str) -> None:
        self.hosts[name].paused = True

    def wake(self, name: str) -> None:
        """Continue a paused process: what came in meanwhile is in its socket, and all its timers are late."""
        host = self.hosts[name]
        host.paused = False
        host.last_fault_end = self.now
        host.wake = math.inf
        inbox, host.inbox = host.inbox, []
        self._apply(host, host.swim.tick(self.now + host.clock_step))
        for message in inbox:
            self._apply(host, host.swim.receive(self.now + host.clock_step, message.sender, message))

    def slow(self, name: str, seconds: float) -> None:
        """Delay everything that a host receives and sends by this much."""
        self.hosts[name].slowness = seconds

    def step_clock(self, name: str, seconds: float) -> None:
        host = self.hosts[name]
        host.clock_step += seconds
        host.wake = math.inf
        self._plan_wake(host)

    def partition(self, *sides: Iterable[str]) -> None:
        """Split the network into sides. Hosts that are named in no side are one more side."""
        self.heal()
        self._side = {name: number for number, side in enumerate(sides, start=1) for name in side}

    def heal(self) -> None:
        if self._side:
            self._side = {}
            for host in self.hosts.values():
                host.last_fault_end = self.now

    def leave(self, name: str) -> None:
        """Have a server leave as its agent does: it says goodbye, and its process ends a moment later."""
        host = self.hosts[name]
        self._apply(host, host.swim.leave(self.now + host.clock_step))
        self._later(_LEAVE_SECONDS, name, partial(setattr, host, "killed", True))

    def set_metadata(self, name: str, metadata: bytes) -> None:
        host = self.hosts[name]
        self._apply(host, host.swim.set_metadata(self.now + host.clock_step, metadata))

    # -- running -------------------------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        heap, hosts = self._heap, self.hosts
        while heap and heap[0][0] <= end:
            time, _, name, entry = heapq.heappop(heap)
            self.now = time
            if isinstance(entry, Message):
                host = hosts[name]
                if host.silent or host.killed:
                    continue
                if host.paused:
                    if len(host.inbox) < _INBOX:
                        host.inbox.append(entry)
                    continue
                self._apply(host, host.swim.receive(time + host.clock_step, entry.sender, entry))
            elif isinstance(entry, Host):
                if entry.wake != time or not entry.running or entry.paused:
                    continue
                entry.wake = math.inf
                self._apply(entry, entry.swim.tick(time + entry.clock_step))
            else:
                entry()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float, step: float = 0.1) -> float:
        """Run until the condition is true, checked every `step`; return the seconds it took, or infinity."""
        start = self.now
        while not condition():
            if self.now - start >= limit:
                return math.inf
            self.run_for(step)
        return self.now - start

    def agreed(self) -> bool:
        """Return whether every running host regards exactly the running hosts as alive."""
        running = {name for name, host in self.hosts.items() if host.running and not host.swim.has_left}
        for name in running:
            states = {member.name: member.state for member in self.hosts[name].swim.members()}
            if any(
                (state is State.ALIVE) != (other in running) or state is State.SUSPECT
                for other, state in states.items()
            ):
                return False
            if not running <= states.keys():
                return False
        return True

    def state_at(self, observer: str, member: str) -> State | None:
        """Return the state of a member in the observer's view; None if the observer does not know it."""
        entry = self.hosts[observer].swim.member(member)
        return entry.state if entry is not None else None

    # -- the world -----------------------------------------------------------------------------------------------------

    def _apply(self, host: Host, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._deliver(host, output)
            elif isinstance(output, Event):
                self._record(host, output)
            else:
                self._dial(host, output)
        self._plan_wake(host)

    def _plan_wake(self, host: Host) -> None:
        deadline = host.swim.next_deadline() - host.clock_step
        if deadline < host.wake:
            # Between two clocks a deadline may round to just before now; time must go on.
            host.wake = deadline if deadline > self.now else self.now + 1e-6
            heapq.heappush(self._heap, (host.wake, next(self._serial), host.name, host))

    def _deliver(self, host: Host, send: Send) -> None:
        self.messages += 1
        self.bytes += encoded_size(send.message)
        if self.tap is not None:
            self.tap(self.now, send)
        target = self._at_known_address(host, send.to)
        if target is None or (self._side and not self._reaches(host.name, send.to)):
            return
        conditions, chance = self.conditions, self._rng.random
        delay = (
            conditions.fastest + chance() * (conditions.slowest - conditions.fastest) + host.slowness + target.slowness
        )
        if conditions.loss and chance() < conditions.loss:
            if not send.reliable:
                return
            delay += self._retries()
            if delay > _GIVE_UP:
                return
        heapq.heappush(self._heap, (self.now + delay, next(self._serial), send.to, send.message))

    def _retries(self) -> float:
        """Return TCP's delay for lost segments: each is sent again, every time after twice the time."""
        wait = total = _FIRST_RETRY
        while self._rng.random() < self.conditions.loss and total < _GIVE_UP:
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
            self._apply(host, hint(self.now + host.clock_step, peer))

    def _record(self, host: Host, event: Event) -> None:
        observation = Observation(self.now, host.name, event)
        self.observations.append(observation)
        if event.kind is EventKind.DEAD:
            accused = self.hosts.get(event.member.name)
            if accused is not None and not self._is_explained(accused, host):
                self.false_deaths.append(observation)

    def _is_explained(self, accused: Host, observer: Host) -> bool:
        """Return whether a fault, now or just before, explains that a host was reported dead."""
        if not accused.running or accused.paused or not self._reaches(accused.name, observer.name):
            return True
        return self.now - max(accused.last_fault_end, observer.last_fault_end) < _AFTERMATH

    def _later(self, delay: float, name: str, action: _Action) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._serial), name, action))

    def _delay(self) -> float:
        return self.conditions.fastest + self._rng.random() * (self.conditions.slowest - self.conditions.fastest)

    def _at_known_address(self, host: Host, name: str) -> Host | None:
        """Return the host at the address that the sender knows; None if the host has moved from it."""
        target = self.hosts.get(name)
        if name in self._moved and target is not None:
            member = host.swim.member(name)
            if member is not None and member.record.address != target.swim.me.address:
                return None
        return target

    def _reaches(self, sender: str, receiver: str) -> bool:
        return self._side.get(sender) == self._side.get(receiver)
