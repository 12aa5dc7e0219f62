"""What machines report of themselves: registration, inventory, heartbeats.

A MAC or UUID finds a node; only its key, and the token it got for it, prove that a machine is that node.
"""

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
from rackwright.domain.networks.source_networks import source_network
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.machines import power_saving
from rackwright.store.machines.install_attempts import record_boot_during_install
from rackwright.store.machines.keys import key_fingerprint, pin_key
from rackwright.store.machines.nodes import (
    NewNode,
    NodeRecord,
    confirm_identity,
    create_node,
    delete_node,
    find_node,
    get_node,
    record_boot,
    update_node,
)
from rackwright.store.networks.allocations import is_plausible_source

log = logging.getLogger(__name__)

QUARANTINE_LIMIT = 1000
"""Machines that may wait to be accepted."""
QUARANTINE_LIMIT_PER_SOURCE = 32
"""Machines from one address that may wait to be accepted.

A machine has an address of its own, so there is one, or a few behind a relay; an attacker who makes machines up has to
make up addresses too.
"""
QUARANTINE_LIMIT_PER_NETWORK = 500
"""Machines from one IPv6 network that may wait: a host there can make up any number of addresses.

It is half of all, so that machines of other networks have room in any case.
"""
QUARANTINE_DAYS = 7
OFFER_SECONDS = 10
"""Seconds for which an offered key is not replaced, so that a client that alternates between keys writes little."""
MAX_MISSED_HEARTBEATS = 3
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
    """The pattern of its name if the machine is new."""
    source: str = ""
    """The address that the machine asks from."""
    has_network: bool = True
    """It comes over a network of its own; simulated machines come over loopback, whatever address they have."""


@dataclass(frozen=True)
class RegisteredMachine:
    node_id: int
    token: str
    new: bool


@dataclass(frozen=True)
class RefusedMachine:
    """A machine that was not let in: its node has another key, or its MAC is a claim that nobody confirmed."""

    node: str
    key: str
    """The fingerprint of the key that the machine came with."""
    fits: bool = True
    """The source is an address that the node can have. If not, nothing was recorded, and nobody can accept it."""


async def register_machine(session: GraphSession, machine: Registration) -> RegisteredMachine | RefusedMachine:
    """Find the node that this machine is, or create one in quarantine."""
    known_id = await find_node(session, machine.macs, machine.uuid, machine.key)
    if known_id is None:
        node_id = await _create_quarantined_node(session, machine)
    else:
        node_id = known_id
        fits = not machine.has_network or await is_plausible_source(session, node_id, machine.source)
        if not await _is_recognized(session, node_id, machine, fits=fits):
            return RefusedMachine(
                (await get_node(session, node_id, EVERYTHING)).name, key_fingerprint(machine.key), fits
            )
        await _replace_inventory(session, node_id, machine)
    if not await record_machine_boot(session, node_id, machine.boot_id, machine.bootenv):
        raise Conflict(Rule.BUSY, "This registration is of an earlier boot of the machine. It changes nothing.")
    token = secrets.token_urlsafe(32)
    await session.run(
        "UPDATE nodes SET token_hash = :hash, seen_at = now() WHERE id = :id", hash=token_hash(token), id=node_id
    )
    return RegisteredMachine(node_id, token, known_id is None)


async def _create_quarantined_node(session: GraphSession, machine: Registration) -> int:
    await _check_quarantine_room(session, machine.source)
    name = machine.name or await _choose_name(session, machine)
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
    await _replace_inventory(session, node_id, machine)
    await emit(session, "node.waiting", node_id, node_id=node_id, data={"name": name})
    return node_id


async def _choose_name(session: Session, machine: Registration) -> str:
    """Return the first of the machine's possible names that no node has. The name with its MAC in it is the last."""
    names = machine_names(machine.pattern, machine.macs[0], machine.uuid, machine.inventory)
    rows = await session.rows("SELECT name FROM nodes WHERE name = ANY (:names)", names=names)
    taken = {row.name for row in rows}
    return next((name for name in names if name not in taken), names[-1])


async def _check_quarantine_room(session: Session, source: str) -> None:
    rows = await session.rows(
        "SELECT registered_from, count(*) AS machines FROM nodes WHERE waiting_since IS NOT NULL GROUP BY 1"
    )
    waiting = {str(row.registered_from): int(row.machines) for row in rows}
    if sum(waiting.values()) >= QUARANTINE_LIMIT:
        raise QuarantineFull
    network = source_network(source)
    from_network = sum(number for address, number in waiting.items() if source_network(address) == network)
    if waiting.get(source, 0) >= QUARANTINE_LIMIT_PER_SOURCE:
        raise QuarantineFull(
            f"{waiting[source]} new machines from your address wait to be accepted already. Accept or delete some."
        )
    if from_network >= QUARANTINE_LIMIT_PER_NETWORK:
        raise QuarantineFull(
            f"{from_network} new machines from your network wait to be accepted already. Accept or delete some."
        )


async def _replace_inventory(session: GraphSession, node_id: int, machine: Registration) -> None:
    """Replace what the machine's system reported before with what it reports now.

    An installed system reports little of its hardware, so what sledgehammer found out stays until sledgehammer reports
    otherwise. There is no third system: whatever else a machine calls its system, it cannot add to what is stored.
    """
    system = LOCAL if machine.bootenv == LOCAL else SLEDGEHAMMER
    row = await session.row("SELECT discovery, reported_by FROM nodes WHERE id = :id", id=node_id)
    assert row is not None, "it is locked"
    other_facts = {key: value for key, value in row.discovery.items() if row.reported_by.get(key) != system}
    owners = {key: owner for key, owner in row.reported_by.items() if key in other_facts}
    owners |= dict.fromkeys(machine.inventory, system)
    if owners != row.reported_by:
        await session.run("UPDATE nodes SET reported_by = :it WHERE id = :id", it=Jsonb(owners), id=node_id)
    await update_node(session, node_id, {"discovery": {**other_facts, **machine.inventory}})


async def _is_recognized(session: GraphSession, node_id: int, machine: Registration, *, fits: bool) -> bool:
    """Return whether the machine is the node: by the node's key, or as the first machine of a node added for it.

    Another key is recorded, for a person who may accept machines to look at, and changes nothing else: neither a MAC
    nor a reboot that the server ordered excuses it.
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
    await _record_offered_key(session, node_id, machine)
    return False


async def _record_offered_key(session: Session, node_id: int, machine: Registration) -> None:
    changed = await session.run(
        "UPDATE nodes SET offered_key = :key, offered_from = :source, offered_at = now() WHERE id = :id"
        " AND (offered_key, offered_from) IS DISTINCT FROM (:key, :source)"
        " AND coalesce(offered_at < now() - :seconds * interval '1 second', true)",
        id=node_id,
        key=machine.key,
        source=machine.source,
        seconds=OFFER_SECONDS,
    )
    if changed:
        data: JsonObject = {"key": key_fingerprint(machine.key), "address": machine.source}
        await emit(session, "node.key_offered", node_id, node_id=node_id, data=data)


async def record_machine_boot(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """Record what a machine booted, and return whether that is its last boot; an install attempt gets its own boots.

    A message of an earlier boot was long on its way, or is somebody else's repetition, and changes nothing.
    """
    node = await session.row("SELECT boot_id, past_boot_ids FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    if node is None:
        raise NotFound("node", node_id)
    if boot_id in node.past_boot_ids:
        return False
    if boot_id == node.boot_id:
        return True
    await power_saving.record_awake(session, node_id)
    installing = await record_boot_during_install(session, node_id, boot_id, bootenv)
    await record_boot(session, node_id, boot_id, bootenv, installing=installing)
    return True


async def record_plain_heartbeat(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """Record a heartbeat of a live machine that reports nothing new, in one statement; False: it is no such heartbeat.

    Most heartbeats are like this, and a rack sends many.
    """
    changed = await session.run(
        "UPDATE nodes SET seen_at = now() WHERE id = :id AND boot_id = :boot_id"
        " AND observed_bootenv = :bootenv AND alive AND sleep IS NULL",
        id=node_id,
        boot_id=boot_id,
        bootenv=bootenv,
    )
    return changed == 1


async def record_heartbeat(session: Session, node_id: int, boot_id: str, bootenv: str) -> None:
    """Record a heartbeat. The first one after a silence makes the node alive again."""
    if not await record_machine_boot(session, node_id, boot_id, bootenv):
        return
    await session.run("UPDATE nodes SET seen_at = now() WHERE id = :id", id=node_id)
    await power_saving.cancel_waking(session, node_id)
    node = await get_node(session, node_id, EVERYTHING)
    # While a node is being installed the attempt says when it is alive; while it falls asleep, only a new boot does.
    busy = await session.value(
        "SELECT 1 FROM nodes n WHERE id = :id AND (sleep IS NOT NULL OR EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL))",
        id=node_id,
    )
    if not node.alive and not busy and node.boot_id == boot_id:
        await update_node(session, node_id, {"alive": True})


async def accept_machine(session: Session, name_or_id: str | int, key: str | None = None) -> None:
    """Let a machine in: from now on the annealer may work on it. `key`: the fingerprint of the key it has offered.

    Without `key` it is the machine that the node is known by already.
    """
    node = await get_node(session, name_or_id, EVERYTHING)
    if key is not None:
        await _accept_offered_key(session, node, key)
    elif node.offered_key is not None and not await session.value("SELECT key FROM nodes WHERE id = :id", id=node.id):
        raise Conflict(
            Rule.KEY_OFFERED,
            f"A machine at {node.offered_from} says that it is {node.name}. Compare the key on its console with "
            f"{key_fingerprint(node.offered_key)}, and accept it with that: "
            f"rackwright node accept {node.name} --key KEY.",
        )
    await confirm_identity(session, node, confirmed=True)
    await update_node(session, node.id, {"available": True})


async def _accept_offered_key(session: Session, node: NodeRecord, key: str) -> None:
    if node.offered_key is None or key_fingerprint(node.offered_key) != key:
        offered = "none" if node.offered_key is None else key_fingerprint(node.offered_key)
        raise Conflict(
            Rule.KEY_OFFERED, f"No machine offers the key {key} for {node.name}: it is {offered} now. Look at it again."
        )
    await pin_key(session, node.id, node.offered_key)
    await emit(session, "node.key_accepted", node.id, node_id=node.id, data={"key": key})


async def find_node_by_token(session: Session, token: str) -> int | None:
    node_id: int | None = await session.value("SELECT id FROM nodes WHERE token_hash = :hash", hash=token_hash(token))
    return node_id


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


ASK_SECONDS = 30.0
"""Seconds between two checks of an installed system, which sends no heartbeats of its own."""


async def mark_silent_machines(session: Session, interval: float) -> list[int]:
    """Mark machines that have been silent for too long as not alive. Installed ones are asked, and less often."""
    rows = await session.rows(
        "SELECT id FROM nodes WHERE alive AND NOT system AND NOT admin AND seen_at < now() - interval '1 second' *"
        " CASE WHEN observed_bootenv IN (:local, '') THEN :asked ELSE :silence END ORDER BY id FOR UPDATE SKIP LOCKED",
        local=LOCAL,
        asked=max(interval, ASK_SECONDS) * MAX_MISSED_HEARTBEATS,
        silence=interval * MAX_MISSED_HEARTBEATS,
    )
    for row in rows:
        await update_node(session, row.id, {"alive": False})
    return [row.id for row in rows]


_ADDED_BY_ADDRESS = "(boot_id IS NULL AND token_hash IS NULL AND hint ->> 'address' <> '')"
"""SQL condition: a person said where the node's machine is, and the machine has not reported anything yet."""


async def start_silence_clock(session: Session) -> None:
    """Start to count the silence of machines that a person says are up; else they would stay alive for ever."""
    await session.run(
        "UPDATE nodes SET seen_at = now() WHERE alive AND seen_at IS NULL AND NOT system AND NOT admin"
        f" AND {_ADDED_BY_ADDRESS}"
    )


async def record_first_boot(session: Session, node_id: int, boot_id: str) -> None:
    """Record the boot of a machine that never reported one. It is no reboot: what runs on it goes on.

    A machine that only the mesh knows of is watched there.
    """
    await session.run(
        "UPDATE nodes SET boot_id = :boot_id, observed_bootenv = :local, seen_at = now() WHERE id = :id"
        " AND boot_id IS NULL AND NOT system AND NOT admin AND coalesce(discovery -> :mark ->> 'made', '') <> 'true'",
        id=node_id,
        boot_id=boot_id,
        local=LOCAL,
        mark=MARK,
    )


async def record_answer(session: Session, node_id: int) -> None:
    """Record that a machine that never let the server in answers.

    The machine is up, so what is to be done there runs, and can say why it fails.
    """
    changed = await session.run(
        f"UPDATE nodes SET seen_at = now() WHERE id = :id AND NOT system AND NOT admin AND {_ADDED_BY_ADDRESS}",
        id=node_id,
    )
    if changed:
        await update_node(session, node_id, {"alive": True})


async def select_machines_to_ask(session: Session, every: float = ASK_SECONDS, *, alive: bool) -> list[int]:
    """Return machines, alive or silent, that were not heard of for a while and send no heartbeats.

    They were accepted at some time, and run an installed system or were added by their address. One that was set aside
    is asked, too: it runs, and a machine that runs is not silent.
    """
    rows = await session.rows(
        f"SELECT id FROM nodes n WHERE waiting_since IS NULL AND NOT system AND NOT admin AND alive = :alive"
        f" AND sleep IS NULL AND (observed_bootenv = :local OR {_ADDED_BY_ADDRESS})"
        " AND coalesce(seen_at < now() - :every * interval '1 second', true) AND NOT EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL) ORDER BY id",
        local=LOCAL,
        alive=alive,
        every=every,
    )
    return [row.id for row in rows]


async def delete_abandoned_machines(session: GraphSession) -> None:
    """Delete nodes of machines that nobody accepted and that have gone.

    A node that cannot be deleted does not keep the others.
    """
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
