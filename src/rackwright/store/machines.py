"""What machines say of themselves: registration, inventory, heartbeats. A MAC or UUID finds a node; only its key and
the token it got for it say that it is that node."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, RackwrightError, Rule
from rackwright.domain.install import LOCAL
from rackwright.domain.names import check_mac
from rackwright.store import powersave
from rackwright.store.attempts import boot_during_install
from rackwright.store.events import emit
from rackwright.store.keys import pin_key
from rackwright.store.nodes import NewNode, boot_node, create_node, delete_node, find_node, get_node, update_node
from rackwright.store.session import Session

QUARANTINE_LIMIT = 1000
"""Machines that may wait to be accepted."""
QUARANTINE_DAYS = 7
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


@dataclass(frozen=True)
class Registered:
    node_id: int
    token: str
    new: bool


async def register(session: Session, machine: Registration) -> Registered:
    """Find the node this machine is, or make it one in quarantine. Needs the graph lock."""
    known = await find_node(session, machine.macs, machine.uuid, machine.key)
    if known is None:
        node_id = await _quarantine(session, machine)
    else:
        node_id = known
        await _check_key(session, node_id, machine.key)
        await _found_again(session, node_id, machine.inventory)
    if not await machine_booted(session, node_id, machine.boot_id, machine.bootenv):
        raise Conflict(Rule.BUSY, "This registration is of an earlier boot of the machine. It changes nothing.")
    token = secrets.token_urlsafe(32)
    await session.run(
        "UPDATE nodes SET token_hash = :hash, seen_at = now() WHERE id = :id", hash=token_hash(token), id=node_id
    )
    return Registered(node_id, token, known is None)


async def _quarantine(session: Session, machine: Registration) -> int:
    waiting: int = await session.value("SELECT count(*) FROM nodes WHERE NOT available AND NOT system")
    if waiting >= QUARANTINE_LIMIT:
        raise QuarantineFull
    name = machine.name or f"d{check_mac(machine.macs[0]).replace(':', '')}.discovered.internal"
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
        ),
    )
    await pin_key(session, node_id, machine.key)
    await emit(session, "node.waiting", node_id, node_id=node_id, data={"name": name})
    return node_id


async def _found_again(session: Session, node_id: int, inventory: JsonObject) -> None:
    """An installed system says little of its hardware; what sledgehammer found out stays."""
    known = (await get_node(session, node_id)).discovery
    await update_node(session, node_id, {"discovery": {**known, **inventory}})


async def _check_key(session: Session, node_id: int, key: str) -> None:
    """The key must be the one the node is known by, unless the server itself had it reboot into something new."""
    node = await session.row("SELECT name, key, may_rekey FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    assert node is not None
    if node.key == key:
        return
    if node.key is None or node.may_rekey:
        await pin_key(session, node_id, key)
        return
    raise Conflict(
        Rule.EXISTS,
        f"A machine with the MAC or UUID of {node.name} came with another key, and no reboot was ordered. "
        "If the machine was replaced, delete the node first.",
    )


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
    await powersave.booted(session, node_id)
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
    await powersave.still_up(session, node_id)
    node = await get_node(session, node_id)
    # While it is being installed the attempt says when it is alive; while it falls asleep, only a new boot does.
    busy = await session.value(
        "SELECT 1 FROM nodes n WHERE id = :id AND (sleep IS NOT NULL OR EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL))",
        id=node_id,
    )
    if not node.alive and not busy and node.boot_id == boot_id:
        await update_node(session, node_id, {"alive": True})


async def accept(session: Session, name_or_id: str | int) -> None:
    """Let a new machine in: from now on the annealer may work on it."""
    await update_node(session, (await get_node(session, name_or_id)).id, {"available": True})


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
        " CASE WHEN observed_bootenv = :local THEN :asked ELSE :silence END ORDER BY id FOR UPDATE SKIP LOCKED",
        local=LOCAL,
        asked=max(interval, ASK_EVERY) * MISSES,
        silence=interval * MISSES,
    )
    for row in rows:
        await update_node(session, row.id, {"alive": False})
    return [row.id for row in rows]


async def to_ask(session: Session, every: float = ASK_EVERY) -> list[int]:
    """Accepted machines that run an installed system, and were not heard of for a while."""
    rows = await session.rows(
        "SELECT id FROM nodes n WHERE available AND NOT system AND NOT admin AND observed_bootenv = :local"
        " AND sleep IS NULL AND seen_at < now() - :every * interval '1 second' AND NOT EXISTS ("
        " SELECT FROM install_attempts a WHERE a.node_id = n.id AND a.ended_at IS NULL) ORDER BY id",
        local=LOCAL,
        every=every,
    )
    return [row.id for row in rows]


async def forget_waiting(session: Session) -> None:
    """Machines nobody accepted, and that have gone, are forgotten."""

    rows = await session.rows(
        "SELECT id FROM nodes WHERE NOT available AND NOT system AND NOT admin"
        " AND coalesce(seen_at, created_at) < now() - :days * interval '1 day'",
        days=QUARANTINE_DAYS,
    )
    for row in rows:
        await delete_node(session, row.id)
