"""The rules of membership: what an update about a member does to the table, and to which members it is passed on.

Holds what the parts of the membership machine share (table, gossip queue, timers, clock, outputs). When to probe is
`probe.py`, when to compare tables `sync.py`, when a closed connection proves a death `death_inquiry.py`; `swim.py` puts
them together.
"""

import itertools
import random
from dataclasses import dataclass, replace

from rackwright.mesh.membership.awareness import Awareness
from rackwright.mesh.membership.gossip_queue import BroadcastQueue, retransmit_limit
from rackwright.mesh.membership.member import LIVE, MAX_INCARNATION, Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import MemberTable, SharedBase
from rackwright.mesh.membership.messages import Alive, Body, Dead, Gossip, Message, Suspect, Update
from rackwright.mesh.membership.protocol_config import SwimConfig
from rackwright.mesh.membership.protocol_outputs import Event, EventKind, Output, Send
from rackwright.mesh.membership.suspicion import Suspicion, confirmations_needed, suspicion_timeout
from rackwright.mesh.membership.timers import Timers

_MAX_REMEMBERED = 64


@dataclass(slots=True)
class Counters:
    """Counters of what happened, for metrics. They are only ever raised."""

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
    """One member's view of all members, and the rules by which updates change it."""

    __slots__ = (
        "_conflicts",
        "_gossip_due",
        "_last_gossip",
        "_owed_refutations",
        "_sequence",
        "_suspicion_timers",
        "_suspicions",
        "_urgent_probes",
        "awareness",
        "config",
        "counters",
        "leaving",
        "me",
        "nonces",
        "now",
        "outputs",
        "queue",
        "removed",
        "rng",
        "synced",
        "table",
        "timers",
    )

    def __init__(self, config: SwimConfig, me: MemberRecord, rng: random.Random, base: SharedBase | None) -> None:
        self.config = config
        self.me = me if me.incarnation >= me.session else me.with_incarnation(me.session)
        self.rng = rng
        self.now = 0.0
        self.outputs: list[Output] = []
        self.table = MemberTable(base) if base is not None else MemberTable()
        self.queue = BroadcastQueue(config.max_queue)
        self.timers = Timers()
        self.awareness = Awareness(config.awareness_max)
        self.counters = Counters()
        self.nonces = itertools.count(rng.getrandbits(32))
        self.leaving = False
        self.synced = True  # false after a join or a pause, until another member has compared tables with us
        self.removed: set[str] = set()
        self._sequence = 0
        self._last_gossip = -config.gossip_interval
        self._gossip_due = False
        self._owed_refutations: dict[str, Update] = {}
        self._suspicions: dict[str, Suspicion] = {}
        self._suspicion_timers: dict[str, float] = {}
        self._conflicts: dict[str, float] = {}
        self._urgent_probes: list[str] = []
        own_entry = self.table.get(me.name)
        if own_entry is None or own_entry.record != self.me:
            self.table.put(Entry(self.me, State.ALIVE, 0.0))

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, to: str, body: Body, reliable: bool = False) -> None:
        """Send a message with as many updates as fit, first of all those that concern `to` itself.

        Every message to an accused member carries the accusation (Lifeguard's buddy system): only that member can
        refute.
        """
        updates = self.queue.take(self.config.gossip_bytes, self.transmits) if len(self.queue) else ()
        entry = self.table.get(to)
        if entry is not None and entry.state is not State.ALIVE:
            updates = (self._accusation(entry), *updates)
        if not self.synced:
            # A member that does not know us, or not at this address, could not answer.
            updates = (Alive(self.me), *updates)
        elif self._owed_refutations and to in self._owed_refutations:
            updates = (self._owed_refutations.pop(to), *updates)
        self._sequence += 1
        self.counters.sent += 1
        self.outputs.append(Send(to, Message(self.me.name, self.me.session, self._sequence, body, updates), reliable))

    def _accusation(self, entry: Entry) -> Update:
        """Return the update about an entry that is not alive."""
        if entry.state is State.SUSPECT:
            return Suspect(entry.name, entry.incarnation, self.me.name)
        return Dead(entry.name, entry.incarnation, self.me.name if entry.state is State.DEAD else entry.name)

    @property
    def transmits(self) -> int:
        """How often each update is sent."""
        return retransmit_limit(self.config.retransmit_multiplier, self.table.live)

    def broadcast(self, update: Update) -> None:
        """Pass an update on to other members."""
        self.queue.add(update)
        self._plan_gossip()

    def _plan_gossip(self) -> None:
        """Plan a round of gossip: at once if the last one is long enough ago. An idle member gossips nothing at all."""
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
            # Alone. A member that comes later compares tables first.
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
        # The dead receive it for a while: if they are not dead, they must be able to refute.
        return entry.state is State.DEAD and self.now - entry.since < self.config.gossip_to_the_dead

    def emit(self, kind: EventKind, member: MemberRecord) -> None:
        self.outputs.append(Event(kind, member))

    def others_alive(self, entry: Entry) -> bool:
        return entry.state is State.ALIVE and entry.name != self.me.name

    def others_live(self, entry: Entry) -> bool:
        return entry.state in LIVE and entry.name != self.me.name

    # -- updates -------------------------------------------------------------------------------------------------------

    def apply(self, update: Update, source: str) -> None:
        """Apply an update. `source` sent it: it is not the accused, and need not be the accuser."""
        if update.name in self.removed:
            return
        if isinstance(update, Alive):
            self.alive(update)
        elif isinstance(update, Suspect):
            self.suspect(update, source)
        elif self.synced or update.left:
            self.dead(update, source)
        else:
            # We were away: this may have waited in a buffer for long, and be refuted by now.
            self.suspect(Suspect(update.name, update.incarnation, update.accuser), source)

    def alive(self, update: Alive) -> None:
        """Apply an update that a member lives."""
        record = update.record
        if record.name == self.me.name:
            self._receive_own_record(record)
            return
        entry = self.table.get(record.name)
        if entry is None:
            self._add(update)
            return
        if record.address != entry.record.address and entry.state in LIVE:
            # Moved, or a second process under the same name: the first must be dead before its name is free.
            if record.incarnation >= entry.incarnation:
                self._conflict(record)
                self.probe_soon(record.name)
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
        """Apply an update that a member is suspected: start a suspicion, or confirm the one that runs."""
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
                self._set_suspicion_timer(update.name, running.deadline)
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
        # The incarnation is that of the accusation: it may be newer than the record that has reached us.
        record = entry.record.with_incarnation(update.incarnation)
        self.table.put(Entry(record, State.SUSPECT, self.now))
        self.counters.suspicions += 1
        self.broadcast(update)
        self.emit(EventKind.SUSPECT, record)
        self._set_suspicion_timer(update.name, suspicion.deadline)
        if update.accuser != self.me.name and self.rng.random() * members < config.second_opinions:
            self.probe_soon(update.name)

    def _set_suspicion_timer(self, name: str, deadline: float) -> None:
        """Set the timer of a suspicion: one a member, unless an earlier one is needed.

        A member that flips between two states must not fill the heap.
        """
        current = self._suspicion_timers.get(name)
        if current is None or deadline < current:
            self._suspicion_timers[name] = deadline
            self.timers.at(deadline, self._suspicion_due, name, deadline)

    def _suspicion_due(self, name: str, deadline: float) -> None:
        if self._suspicion_timers.get(name) != deadline:
            return
        del self._suspicion_timers[name]
        suspicion, entry = self._suspicions.get(name), self.table.get(name)
        if suspicion is None or entry is None:
            return
        if suspicion.deadline > self.now:
            self._set_suspicion_timer(name, suspicion.deadline)
        else:
            self.dead(Dead(name, entry.incarnation, self.me.name), self.me.name)

    def next_urgent_probe(self) -> str | None:
        """Return a member that is to be probed before its turn."""
        return self._urgent_probes.pop() if self._urgent_probes else None

    def probe_soon(self, name: str) -> None:
        """Have a member probed before its turn."""
        if name not in self._urgent_probes and len(self._urgent_probes) < _MAX_REMEMBERED:
            self._urgent_probes.append(name)

    def dead(self, update: Dead, source: str) -> None:
        """Apply an update that a member is dead, or has left."""
        if update.name == self.me.name:
            self._accused(update.incarnation, source)
            return
        entry = self.table.get(update.name)
        if entry is None or update.incarnation < entry.incarnation:
            return
        # A member that said goodbye has left, whatever others concluded from its silence.
        is_late_goodbye = update.left and entry.state is State.DEAD
        if entry.state not in LIVE and not is_late_goodbye:
            return
        if not update.left and not self._may_accuse(update.accuser):
            return
        self._suspicions.pop(update.name, None)
        record = entry.record.with_incarnation(update.incarnation)
        self.table.put(Entry(record, State.LEFT if update.left else State.DEAD, self.now))
        self.broadcast(update)
        if not update.left:
            self.counters.deaths += 1
        self.emit(EventKind.LEFT if update.left else EventKind.DEAD, record)

    def incarnation_of(self, name: str) -> int | None:
        """Return the incarnation of a member that may be accused; None for one that is unknown or gone."""
        entry = self.table.get(name)
        return entry.incarnation if entry is not None and entry.state in LIVE else None

    # -- about ourselves -----------------------------------------------------------------------------------------------

    def announce(self, record: MemberRecord) -> None:
        """Replace our own record and pass it on, with a higher incarnation."""
        self.me = replace(record, incarnation=min(record.incarnation + 1, MAX_INCARNATION))
        self.table.put(Entry(self.me, State.ALIVE, self.now))
        if not self.leaving:
            self.broadcast(Alive(self.me))

    def _accused(self, incarnation: int, source: str) -> None:
        """Refute an accusation against ourselves."""
        if self.leaving:
            return
        if incarnation < self.me.incarnation:
            # Refuted already, but the refutation has not reached this source.
            if len(self._owed_refutations) >= _MAX_REMEMBERED:
                del self._owed_refutations[next(iter(self._owed_refutations))]
            self._owed_refutations[source] = Alive(self.me)
            return
        self._refute(incarnation)

    def _refute(self, incarnation: int) -> None:
        self.counters.refutations += 1
        self.awareness.add(1)
        self.announce(self.me.with_incarnation(incarnation))

    def _receive_own_record(self, record: MemberRecord) -> None:
        """Handle a record under our own name: an old one of ours is refuted, one of another process is a conflict."""
        if self.leaving or record.incarnation < self.me.incarnation:
            return
        if record.session > self.me.session or (
            record.address != self.me.address and record.session == self.me.session
        ):
            # Another process runs under our name. Both would refute each other for ever; people must decide.
            self._conflict(record)
        elif (
            record.session < self.me.session
            or _content(record) != _content(self.me)
            or record.incarnation > self.me.incarnation
        ):
            # An old record of ours, which others still believe.
            self._refute(record.incarnation)

    def _conflict(self, record: MemberRecord) -> None:
        """Report that another process claims a name: once a minute and name, since the claim comes with every gossip
        round."""
        last = self._conflicts.get(record.name)
        if last is not None and self.now - last < 60.0:
            return
        if len(self._conflicts) >= _MAX_REMEMBERED:
            del self._conflicts[next(iter(self._conflicts))]
        self._conflicts.pop(record.name, None)
        self._conflicts[record.name] = self.now
        self.counters.conflicts += 1
        self.emit(EventKind.CONFLICT, record)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def was_paused(self, seconds: float) -> None:
        """Prolong every suspicion by the time in which this process did not run and could not receive a refutation."""
        self._suspicion_timers.clear()
        for name, suspicion in self._suspicions.items():
            suspicion.start += seconds
            self._set_suspicion_timer(name, suspicion.deadline)

    def remove(self, name: str) -> None:
        """Remove a member by decision, not by observation.

        Nothing that it says, or that is said about it, counts until it is readmitted.
        """
        self.removed.add(name)
        self._suspicions.pop(name, None)
        entry = self.table.get(name)
        if entry is not None:
            self.table.drop(name)
            self.queue.discard(name)
            if entry.state is not State.LEFT:
                self.emit(EventKind.LEFT, entry.record)

    def reap(self) -> None:
        """Forget members that are gone for longer than the retention."""
        horizon = self.now - self.config.gone_retention
        for name in list(self.table.gone):
            entry = self.table.get(name)
            if entry is not None and entry.since < horizon:
                self.table.drop(name)


def _content(record: MemberRecord) -> tuple[object, ...]:
    """Return all of a record but its name and incarnation."""
    return (record.address, record.session, record.labels, record.metadata)
