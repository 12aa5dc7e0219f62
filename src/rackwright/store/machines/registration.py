"""What machines say of themselves: registration, inventory, heartbeats. A MAC or UUID finds a node; only its key and
the token it got for it say that it is that node."""

import hashlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, RackwrightError, Rule
from rackwright.domain.machines.install import LOCAL, SLEDGEHAMMER
from rackwright.domain.machines.machine_names import DEFAULT, machine_names
from rackwright.domain.machines.mesh_members import MARK
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.machines import power_saving
from rackwright.store.machines.install_attempts import boot_during_install
from rackwright.store.machines.keys import fingerprint, pin_key
from rackwright.store.machines.nodes import (
    NewNode,
    NodeRecord,
    boot_node,
    confirm_identity,
    create_node,
    delete_node,
    find_node,
    get_node,
    update_node,
)
from rackwright.store.networks.allocations import fits_allocation

log = logging.getLogger(__name__)

QUARANTINE_LIMIT = 1000
"""Machines that may wait to be accepted."""
QUARANTINE_LIMIT_PER_SOURCE = 32
"""Of them, those that may have come from one address. A machine has an address of its own, so it is one, or a few
behind a relay; somebody who makes machines up has to make up addresses too."""
QUARANTINE_DAYS = 7
OFFER_SECONDS = 10
"""A node's offered key is replaced no more often than this, so that whoever alternates between keys writes little."""
MISSES = 3
"""Heartbeats that may be missing before a node counts as not alive."""


class QuarantineFull(RackwrightError):
    """Too many new machines wait to be accepted. Accept or delete some."""

    status = 429
    type = "quarantine-full"


@dataclass(frozen=True)
class Registration:
    """A machine that introduces itself. Its signature has been checked: it holds `key`."""

    key: str
    macs: Sequence[str]
    uuid: str | None
    boot_id: str
    bootenv: str
    inventory: JsonObject = field(default_factory=dict)
    name: str | None = None
    pattern: str = DEFAULT
    """How it is named if it is new."""
    source: str = ""
    """Where it asks from."""
    has_network: bool = True
    """Whether it comes over a network of its own; simulated machines come over loopback, whatever address they have."""


@dataclass(frozen=True)
class Registered:
    node_id: int
    token: str
    new: bool


@dataclass(frozen=True)
class Held:
    """The machine was not let in: the node that it says it is has another key, or its MAC is somebody's mere claim."""

    node: str
    key: str
    """The fingerprint of the key that the machine came with."""
    fits: bool = True
    """Whether it asks from an address that the node can have. If not, nothing was noted, and nobody can accept it."""


async def register(session: GraphSession, machine: Registration) -> Registered | Held:
    """Find the node this machine is, or make it one in quarantine."""
    known = await find_node(session, machine.macs, machine.uuid, machine.key)
    if known is None:
        node_id = await _quarantine(session, machine)
    else:
        node_id = known
        fits = not machine.has_network or await fits_allocation(session, node_id, machine.source)
        if not await _recognize(session, node_id, machine, fits=fits):
            return Held((await get_node(session, node_id, EVERYTHING)).name, fingerprint(machine.key), fits)
        await _found_again(session, node_id, machine)
    if not await machine_booted(session, node_id, machine.boot_id, machine.bootenv):
        raise Conflict(Rule.BUSY, "This registration is of an earlier boot of the machine. It changes nothing.")
    token = secrets.token_urlsafe(32)
    await session.run(
        "UPDATE nodes SET token_hash = :hash, seen_at = now() WHERE id = :id", hash=token_hash(token), id=node_id
    )
    return Registered(node_id, token, known is None)


async def _quarantine(session: GraphSession, machine: Registration) -> int:
    await _check_room(session, machine.source)
    name = machine.name or await _free_name(session, machine)
    node_id = await create_node(
        session,
        NewNode(
            name,
            alive=True,
            available=False,
            macs=machine.macs,
            uuid=machine.uuid,
            key=machine.key,
            discovery=machine.inventory,
            registered_from=machine.source,
            identity_confirmed=False,
        ),
    )
    await pin_key(session, node_id, machine.key)
    await _found_again(session, node_id, machine)
    await emit(session, "node.waiting", node_id, node_id=node_id, data={"name": name})
    return node_id


async def _free_name(session: Session, machine: Registration) -> str:
    """The first of the names that it could have which no node has. One with its MAC in it is the last."""
    names = machine_names(machine.pattern, machine.macs[0], machine.uuid, machine.inventory)
    rows = await session.rows("SELECT name FROM nodes WHERE name = ANY (:names)", names=names)
    taken = {row.name for row in rows}
    return next((name for name in names if name not in taken), names[-1])


async def _check_room(session: Session, source: str) -> None:
    waiting = await session.row(
        "SELECT count(*) AS total, count(*) FILTER (WHERE registered_from = :source) AS from_source"
        " FROM nodes WHERE waiting_since IS NOT NULL",
        source=source,
    )
    assert waiting is not None, "a count is always there"
    if waiting.total >= QUARANTINE_LIMIT:
        raise QuarantineFull
    if waiting.from_source >= QUARANTINE_LIMIT_PER_SOURCE:
        raise QuarantineFull(
            f"{waiting.from_source} new machines from your address wait to be accepted already. Accept or delete some."
        )


async def _found_again(session: GraphSession, node_id: int, machine: Registration) -> None:
    """Take what the machine says of itself in place of what it said before.

    An installed system says little of its hardware, so what sledgehammer found out stays until sledgehammer says
    otherwise. There is no third: whatever else a machine calls its system, it cannot add to what is kept.
    """
    system = LOCAL if machine.bootenv == LOCAL else SLEDGEHAMMER
    row = await session.row("SELECT discovery, reported_by FROM nodes WHERE id = :id", id=node_id)
    assert row is not None, "it is locked"
    kept = {key: value for key, value in row.discovery.items() if row.reported_by.get(key) != system}
    owners = {key: owner for key, owner in row.reported_by.items() if key in kept}
    owners |= dict.fromkeys(machine.inventory, system)
    if owners != row.reported_by:
        await session.run("UPDATE nodes SET reported_by = :it WHERE id = :id", it=Jsonb(owners), id=node_id)
    await update_node(session, node_id, {"discovery": {**kept, **machine.inventory}})


async def _recognize(session: GraphSession, node_id: int, machine: Registration, *, fits: bool) -> bool:
    """Whether the machine is the node: by the node's key, or as the first one of a node that was added for it.

    Another key is noted, for somebody who may accept machines to look at, and changes nothing else: neither a MAC nor
    a reboot that the server ordered excuses it.
    """
    node = await session.row("SELECT key, identity_confirmed FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    assert node is not None, "it was found in this transaction, and only a `GraphSession` takes it out"
    if node.key == machine.key:
        return True
    if not fits:
        return False
    if node.key is None and node.identity_confirmed:
        await pin_key(session, node_id, machine.key)
        return True
    await _note_offer(session, node_id, machine)
    return False


async def _note_offer(session: Session, node_id: int, machine: Registration) -> None:
    noted = await session.run(
        "UPDATE nodes SET offered_key = :key, offered_from = :source, offered_at = now() WHERE id = :id"
        " AND (offered_key, offered_from) IS DISTINCT FROM (:key, :source)"
        " AND coalesce(offered_at < now() - :seconds * interval '1 second', true)",
        id=node_id,
        key=machine.key,
        source=machine.source,
        seconds=OFFER_SECONDS,
    )
    if noted:
        data: JsonObject = {"key": fingerprint(machine.key), "address": machine.source}
        await emit(session, "node.key_offered", node_id, node_id=node_id, data=data)


async def machine_booted(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """A machine says what it booted; during an install that is the attempt's business. Whether that is its last boot:

    what is of an earlier one was long on its way, or is somebody else's repetition, and changes nothing.
    """
    node = await session.row("SELECT boot_id, past_boot_ids FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    if node is None:
        raise NotFound("node", node_id)
    if boot_id in node.past_boot_ids:
        return False
    if boot_id == node.boot_id:
        return True
    await power_saving.booted(session, node_id)
    installing = await boot_during_install(session, node_id, boot_id, bootenv)
    await boot_node(session, node_id, boot_id, bootenv, installing=installing)
    return True


async def still_there(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """Note a heartbeat that says nothing new, of a machine that is up, in one statement; False: it was none of these.

    Most heartbeats are, and a rack sends many.
    """
    noted = await session.run(
        "UPDATE nodes SET seen_at = now() WHERE id = :id AND boot_id = :boot_id"
        " AND observed_bootenv = :bootenv AND alive AND sleep IS NULL",
        id=node_id,
        boot_id=boot_id,
        bootenv=bootenv,
    )
    return noted == 1


async def heartbeat(session: Session, node_id: int, boot_id: str, bootenv: str) -> None:
    """The machine is there. The first one after a silence brings it back to life."""
    if not await machine_booted(session, node_id, boot_id, bootenv):
        return
    await session.run("UPDATE nodes SET seen_at = now() WHERE id = :id", id=node_id)
    await power_saving.still_up(session, node_id)
    node = await get_node(session, node_id, EVERYTHING)
    # While it is being installed the attempt says when it is alive; while it falls asleep, only a new boot does.
    busy = await session.value(
        "SELECT 1 FROM nodes n WHERE id = :id AND (sleep IS NOT NULL OR EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL))",
        id=node_id,
    )
    if not node.alive and not busy and node.boot_id == boot_id:
        await update_node(session, node_id, {"alive": True})


async def accept(session: Session, name_or_id: str | int, key: str | None = None) -> None:
    """Let a machine in: from now on the annealer may work on it. `key`: the fingerprint of the one it has offered.

    Without `key` it is the machine that the node is known by already.
    """
    node = await get_node(session, name_or_id, EVERYTHING)
    if key is not None:
        await _accept_key(session, node, key)
    elif node.offered_key is not None and not await session.value("SELECT key FROM nodes WHERE id = :id", id=node.id):
        raise Conflict(
            Rule.KEY_OFFERED,
            f"A machine at {node.offered_from} says that it is {node.name}. Compare the key on its console with "
            f"{fingerprint(node.offered_key)}, and accept it with that: rackwright node accept {node.name} --key KEY.",
        )
    await confirm_identity(session, node, confirmed=True)
    await update_node(session, node.id, {"available": True})


async def _accept_key(session: Session, node: NodeRecord, key: str) -> None:
    if node.offered_key is None or fingerprint(node.offered_key) != key:
        offered = "none" if node.offered_key is None else fingerprint(node.offered_key)
        raise Conflict(
            Rule.KEY_OFFERED, f"No machine offers the key {key} for {node.name}: it is {offered} now. Look at it again."
        )
    await pin_key(session, node.id, node.offered_key)
    await emit(session, "node.key_accepted", node.id, node_id=node.id, data={"key": key})


async def find_machine(session: Session, token: str) -> int | None:
    found: int | None = await session.value("SELECT id FROM nodes WHERE token_hash = :hash", hash=token_hash(token))
    return found


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


ASK_EVERY = 30.0
"""Seconds between two looks at an installed system, which sends no heartbeats of its own."""


async def miss_heartbeats(session: Session, interval: float) -> list[int]:
    """Machines that have been silent for too long are not alive. Installed ones are asked, and less often."""
    rows = await session.rows(
        "SELECT id FROM nodes WHERE alive AND NOT system AND NOT admin AND seen_at < now() - interval '1 second' *"
        " CASE WHEN observed_bootenv IN (:local, '') THEN :asked ELSE :silence END ORDER BY id FOR UPDATE SKIP LOCKED",
        local=LOCAL,
        asked=max(interval, ASK_EVERY) * MISSES,
        silence=interval * MISSES,
    )
    for row in rows:
        await update_node(session, row.id, {"alive": False})
    return [row.id for row in rows]


_ADDED = "(boot_id IS NULL AND token_hash IS NULL AND hint ->> 'address' <> '')"
"""Somebody said where its machine is, and that has not said a word yet."""


async def begin_watching(session: Session) -> None:
    """Count from now on how long machines are silent that somebody says are up; else they would be for ever."""
    await session.run(
        f"UPDATE nodes SET seen_at = now() WHERE alive AND seen_at IS NULL AND NOT system AND NOT admin AND {_ADDED}"
    )


async def first_look(session: Session, node_id: int, boot_id: str) -> None:
    """Note what a machine has booted that never said so. It is no reboot: what runs on it goes on.

    One that only the mesh knows of is watched there.
    """
    await session.run(
        "UPDATE nodes SET boot_id = :boot_id, observed_bootenv = :local, seen_at = now() WHERE id = :id"
        " AND boot_id IS NULL AND NOT system AND NOT admin AND coalesce(discovery -> :mark ->> 'made', '') <> 'true'",
        id=node_id,
        boot_id=boot_id,
        local=LOCAL,
        mark=MARK,
    )


async def answered(session: Session, node_id: int) -> None:
    """A machine that never let the server in answers: it is up, and what is to be done there can say why it fails."""
    there = await session.run(
        f"UPDATE nodes SET seen_at = now() WHERE id = :id AND NOT system AND NOT admin AND {_ADDED}", id=node_id
    )
    if there:
        await update_node(session, node_id, {"alive": True})


async def to_ask(session: Session, every: float = ASK_EVERY, *, alive: bool) -> list[int]:
    """Machines that were ever accepted, run an installed system or were added by their address, and were not heard of
    for a while; up, or silent.

    One that was set aside is asked, too: it runs, and who runs is not silent.
    """
    rows = await session.rows(
        f"SELECT id FROM nodes n WHERE waiting_since IS NULL AND NOT system AND NOT admin AND alive = :alive"
        f" AND sleep IS NULL AND (observed_bootenv = :local OR {_ADDED})"
        " AND coalesce(seen_at < now() - :every * interval '1 second', true) AND NOT EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL) ORDER BY id",
        local=LOCAL,
        alive=alive,
        every=every,
    )
    return [row.id for row in rows]


async def forget_waiting(session: GraphSession) -> None:
    """Delete nodes of machines that nobody ever accepted, and that have gone. One that cannot go keeps no other."""
    rows = await session.rows(
        "SELECT id, name FROM nodes WHERE waiting_since IS NOT NULL AND NOT available AND NOT system AND NOT admin"
        " AND coalesce(seen_at, waiting_since) < now() - :days * interval '1 day' ORDER BY id",
        days=QUARANTINE_DAYS,
    )
    for row in rows:
        try:
            async with session.connection.begin_nested():
                await delete_node(session, row.id)
        except Conflict as error:
            log.info("%s waited for too long to be accepted, but stays: %s", row.name, error.message)
