"""The rules of membership: what an update about a member does to the table, and whom it is passed on to.

Holds what the parts of the machine share (table, gossip queue, timers, clock, outputs). When to probe is `probe.py`,
when to compare tables `sync.py`, when a closed connection proves a death `death_inquiry.py`; `swim.py` puts them
together.
"""

import itertools
import random
from dataclasses import dataclass, replace

from rackwright.mesh.membership.awareness import Awareness
from rackwright.mesh.membership.gossip_queue import BroadcastQueue, retransmit_limit
from rackwright.mesh.membership.member import LIVE, MAX_INCARNATION, Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import Base, MemberTable
from rackwright.mesh.membership.messages import Alive, Body, Dead, Gossip, Message, Suspect, Update
from rackwright.mesh.membership.protocol_config import SwimConfig
from rackwright.mesh.membership.protocol_outputs import Event, EventKind, Output, Send
from rackwright.mesh.membership.suspicion import Suspicion, confirmations_needed, suspicion_timeout
from rackwright.mesh.membership.timers import Timers

_MAX_REMEMBERED = 64


@dataclass(slots=True)
class Counters:
    """What happened, for metrics. Only ever raised."""

    sent: int = 0
    received: int = 0
    forged: int = 0
    replayed: int = 0
    shut_out: int = 0
    over_limit: int = 0
    probes: int = 0
    probes_failed: int = 0
    suspicions: int = 0
    refutations: int = 0
    deaths: int = 0
    deaths_proved: int = 0
    conflicts: int = 0
    pauses: int = 0


class Membership:
    __slots__ = (
        "_armed",
        "_conflicts",
        "_gossip_due",
        "_last_gossip",
        "_owed",
        "_second_opinion",
        "_sequence",
        "_suspicions",
        "awareness",
        "config",
        "counters",
        "leaving",
        "me",
        "nonces",
        "now",
        "out",
        "queue",
        "removed",
        "rng",
        "settled",
        "table",
        "timers",
    )

    def __init__(self, config: SwimConfig, me: MemberRecord, rng: random.Random, base: Base | None) -> None:
        self.config = config
        self.me = me if me.incarnation >= me.session else me.at(me.session)
        self.rng = rng
        self.now = 0.0
        self.out: list[Output] = []
        self.table = MemberTable(base) if base is not None else MemberTable()
        self.queue = BroadcastQueue(config.max_queue)
        self.timers = Timers()
        self.awareness = Awareness(config.awareness_max)
        self.counters = Counters()
        self.nonces = itertools.count(rng.getrandbits(32))
        self.leaving = False
        self.settled = True  # not so after a join or a pause, until someone has compared tables with us
        self.removed: set[str] = set()
        self._sequence = 0
        self._last_gossip = -config.gossip_interval
        self._gossip_due = False
        self._owed: dict[str, Update] = {}
        self._suspicions: dict[str, Suspicion] = {}
        self._armed: dict[str, float] = {}
        self._conflicts: dict[str, float] = {}
        self._second_opinion: list[str] = []
        known = self.table.get(me.name)
        if known is None or known.record != self.me:
            self.table.put(Entry(self.me, State.ALIVE, 0.0))

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, to: str, body: Body, reliable: bool = False) -> None:
        """Send with as much gossip as fits, and first of all what `to` should hear about itself.

        A member under accusation is told so in every message (Lifeguard's buddy system): it alone can refute.
        """
        updates = self.queue.take(self.config.gossip_bytes, self.transmits) if len(self.queue) else ()
        entry = self.table.get(to)
        if entry is not None and entry.state is not State.ALIVE:
            updates = (self._accusation(entry), *updates)
        if not self.settled:
            # Who does not know us, or not at this address, could not answer.
            updates = (Alive(self.me), *updates)
        elif self._owed and to in self._owed:
            updates = (self._owed.pop(to), *updates)
        self._sequence += 1
        self.counters.sent += 1
        self.out.append(Send(to, Message(self.me.name, self.me.session, self._sequence, body, updates), reliable))

    def _accusation(self, entry: Entry) -> Update:
        if entry.state is State.SUSPECT:
            return Suspect(entry.name, entry.incarnation, self.me.name)
        return Dead(entry.name, entry.incarnation, self.me.name if entry.state is State.DEAD else entry.name)

    @property
    def transmits(self) -> int:
        return retransmit_limit(self.config.retransmit_multiplier, self.table.live)

    def broadcast(self, update: Update) -> None:
        self.queue.add(update)
        self._plan_gossip()

    def _plan_gossip(self) -> None:
        """Fresh news goes out at once if the last round is long enough ago; an idle member gossips nothing at all."""
        if not self._gossip_due:
            self._gossip_due = True
            self.timers.at(max(self.now, self._last_gossip + self.config.gossip_interval), self._gossip)

    def _gossip(self) -> None:
        self._gossip_due = False
        if not len(self.queue):
            return
        self._last_gossip = self.now
        listeners = self.table.sample(self.config.gossip_nodes, self.rng, self._hears_gossip)
        if not listeners:
            # Alone. Whoever comes later compares tables first.
            self.queue.clear()
        for entry in listeners:
            if len(self.queue):
                self.send(entry.name, Gossip())
        if len(self.queue):
            self._plan_gossip()

    def _hears_gossip(self, entry: Entry) -> bool:
        if entry.name == self.me.name:
            return False
        if entry.state in LIVE:
            return True
        # The dead hear it for a while, for if they are not dead they must be able to say so.
        return entry.state is State.DEAD and self.now - entry.since < self.config.gossip_to_the_dead

    def emit(self, kind: EventKind, member: MemberRecord) -> None:
        self.out.append(Event(kind, member))

    def others_alive(self, entry: Entry) -> bool:
        return entry.state is State.ALIVE and entry.name != self.me.name

    def others_live(self, entry: Entry) -> bool:
        return entry.state in LIVE and entry.name != self.me.name

    # -- updates -------------------------------------------------------------------------------------------------------

    def apply(self, update: Update, source: str) -> None:
        """`source` is who told us, which is not who is accused and need not be who accuses."""
        if update.name in self.removed:
            return
        if isinstance(update, Alive):
            self.alive(update)
        elif isinstance(update, Suspect):
            self.suspect(update, source)
        elif self.settled or update.left:
            self.dead(update, source)
        else:
            # We were away: this may have lain in a buffer for long, and be refuted by now.
            self.suspect(Suspect(update.name, update.incarnation, update.accuser), source)

    def alive(self, update: Alive) -> None:
        record = update.record
        if record.name == self.me.name:
            self._claimed_to_be_me(record)
            return
        entry = self.table.get(record.name)
        if entry is None:
            self._add(update)
            return
        if record.address != entry.record.address and entry.state in LIVE:
            # Moved, or a second process under the same name: the first must be dead before its name is free.
            if record.incarnation >= entry.incarnation:
                self._conflict(record)
                self.look_soon(record.name)
            return
        if record.incarnation <= entry.incarnation:
            return
        self._suspicions.pop(record.name, None)
        before = entry.state
        since = entry.since if before is State.ALIVE else self.now
        self.table.put(Entry(record, State.ALIVE, since))
        self.broadcast(update)
        if before is State.ALIVE:
            if _content(record) != _content(entry.record):
                self.emit(EventKind.UPDATED, record)
            return
        self.emit(EventKind.JOINED if before is State.LEFT else EventKind.ALIVE, record)
        if before is State.SUSPECT and _content(record) != _content(entry.record):
            self.emit(EventKind.UPDATED, record)

    def _add(self, update: Alive) -> None:
        if len(self.table) >= self.config.max_members:
            oldest = self.table.oldest_gone()
            if oldest is None:
                self.counters.over_limit += 1
                return
            self.table.drop(oldest.name)
        self.table.put(Entry(update.record, State.ALIVE, self.now))
        self.broadcast(update)
        self.emit(EventKind.JOINED, update.record)

    def suspect(self, update: Suspect, source: str) -> None:
        if update.name == self.me.name:
            self._accused(update.incarnation, source)
            return
        entry = self.table.get(update.name)
        if entry is None or update.incarnation < entry.incarnation or not self._may_accuse(update.accuser):
            return
        running = self._suspicions.get(update.name)
        if running is not None:
            if running.confirm(update.accuser):
                self.broadcast(update)
                self._arm(update.name, running.deadline)
            return
        if entry.state is not State.ALIVE:
            return
        self._start_suspicion(update, entry)

    def _may_accuse(self, accuser: str) -> bool:
        entry = self.table.get(accuser)
        return accuser not in self.removed and entry is not None and entry.state is not State.LEFT

    def _start_suspicion(self, update: Suspect, entry: Entry) -> None:
        config, members = self.config, self.table.live
        shortest = suspicion_timeout(config.suspicion_multiplier, members, config.probe_interval)
        needed = confirmations_needed(config.suspicion_multiplier, members)
        longest = shortest * config.suspicion_max_multiplier
        suspicion = Suspicion(update.accuser, self.now, needed, shortest, longest)
        self._suspicions[update.name] = suspicion
        # The incarnation is the accusation's: it may know of a newer one whose record has not reached us.
        record = entry.record.at(update.incarnation)
        self.table.put(Entry(record, State.SUSPECT, self.now))
        self.counters.suspicions += 1
        self.broadcast(update)
        self.emit(EventKind.SUSPECT, record)
        self._arm(update.name, suspicion.deadline)
        if update.accuser != self.me.name and self.rng.random() * members < config.second_opinions:
            self.look_soon(update.name)

    def _arm(self, name: str, deadline: float) -> None:
        """One timer a member, unless an earlier one is needed: who flips between two states must not fill the heap."""
        armed = self._armed.get(name)
        if armed is None or deadline < armed:
            self._armed[name] = deadline
            self.timers.at(deadline, self._suspicion_due, name, deadline)

    def _suspicion_due(self, name: str, deadline: float) -> None:
        if self._armed.get(name) != deadline:
            return
        del self._armed[name]
        suspicion, entry = self._suspicions.get(name), self.table.get(name)
        if suspicion is None or entry is None:
            return
        if suspicion.deadline > self.now:
            self._arm(name, suspicion.deadline)
        else:
            self.dead(Dead(name, entry.incarnation, self.me.name), self.me.name)

    def next_opinion(self) -> str | None:
        """A member to look at before its turn."""
        return self._second_opinion.pop() if self._second_opinion else None

    def look_soon(self, name: str) -> None:
        if name not in self._second_opinion and len(self._second_opinion) < _MAX_REMEMBERED:
            self._second_opinion.append(name)

    def dead(self, update: Dead, source: str) -> None:
        if update.name == self.me.name:
            self._accused(update.incarnation, source)
            return
        entry = self.table.get(update.name)
        if entry is None or update.incarnation < entry.incarnation:
            return
        # Who said goodbye has left, whatever others concluded from its silence.
        farewell = update.left and entry.state is State.DEAD
        if entry.state not in LIVE and not farewell:
            return
        if not update.left and not self._may_accuse(update.accuser):
            return
        self._suspicions.pop(update.name, None)
        record = entry.record.at(update.incarnation)
        self.table.put(Entry(record, State.LEFT if update.left else State.DEAD, self.now))
        self.broadcast(update)
        if not update.left:
            self.counters.deaths += 1
        self.emit(EventKind.LEFT if update.left else EventKind.DEAD, record)

    def incarnation_of(self, name: str) -> int | None:
        """Of a member that may be accused; None for one that is unknown or gone."""
        entry = self.table.get(name)
        return entry.incarnation if entry is not None and entry.state in LIVE else None

    # -- about ourselves -----------------------------------------------------------------------------------------------

    def announce(self, record: MemberRecord) -> None:
        """What we say of ourselves changes, so the incarnation rises."""
        self.me = replace(record, incarnation=min(record.incarnation + 1, MAX_INCARNATION))
        self.table.put(Entry(self.me, State.ALIVE, self.now))
        if not self.leaving:
            self.broadcast(Alive(self.me))

    def _accused(self, incarnation: int, source: str) -> None:
        if self.leaving:
            return
        if incarnation < self.me.incarnation:
            # Refuted already, but this source has not heard of it.
            if len(self._owed) >= _MAX_REMEMBERED:
                del self._owed[next(iter(self._owed))]
            self._owed[source] = Alive(self.me)
            return
        self._refute(incarnation)

    def _refute(self, incarnation: int) -> None:
        self.counters.refutations += 1
        self.awareness.add(1)
        self.announce(self.me.at(incarnation))

    def _claimed_to_be_me(self, record: MemberRecord) -> None:
        if self.leaving or record.incarnation < self.me.incarnation:
            return
        if record.session > self.me.session or (
            record.address != self.me.address and record.session == self.me.session
        ):
            # Someone else runs under our name. Refuting would be a shouting match; people must decide.
            self._conflict(record)
        elif (
            record.session < self.me.session
            or _content(record) != _content(self.me)
            or record.incarnation > self.me.incarnation
        ):
            # Our own past, which others still believe in.
            self._refute(record.incarnation)

    def _conflict(self, record: MemberRecord) -> None:
        """Told once a minute and name, for the claim comes again with every round of gossip."""
        last = self._conflicts.get(record.name)
        if last is not None and self.now - last < 60.0:
            return
        if len(self._conflicts) >= _MAX_REMEMBERED:
            del self._conflicts[next(iter(self._conflicts))]
        self._conflicts.pop(record.name, None)
        self._conflicts[record.name] = self.now
        self.counters.conflicts += 1
        self.emit(EventKind.CONFLICT, record)

    # -- care ----------------------------------------------------------------------------------------------------------

    def was_paused(self, seconds: float) -> None:
        """We did not run: every suspicion gets the time back in which its refutation could not be heard."""
        self._armed.clear()
        for name, suspicion in self._suspicions.items():
            suspicion.start += seconds
            self._arm(name, suspicion.deadline)

    def remove(self, name: str) -> None:
        """Shut out by decision, not by observation: nothing said by it or about it counts until it is readmitted."""
        self.removed.add(name)
        self._suspicions.pop(name, None)
        entry = self.table.get(name)
        if entry is not None:
            self.table.drop(name)
            self.queue.discard(name)
            if entry.state is not State.LEFT:
                self.emit(EventKind.LEFT, entry.record)

    def reap(self) -> None:
        horizon = self.now - self.config.gone_retention
        for name in list(self.table.gone):
            entry = self.table.get(name)
            if entry is not None and entry.since < horizon:
                self.table.drop(name)


def _content(record: MemberRecord) -> tuple[object, ...]:
    return (record.address, record.session, record.labels, record.metadata)
