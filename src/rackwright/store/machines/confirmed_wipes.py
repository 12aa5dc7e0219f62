"""What people agreed to lose: by the noderole that installs, the fingerprints of the disks that it may wipe."""

from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import DigestRequired, Invalid
from rackwright.domain.installs.wipes import (
    InstallWipes,
    blocking_problems,
    carry_confirmation,
    confirmed_fingerprints,
    disks_with_data,
    name_data,
)
from rackwright.domain.machines.install import SLEDGEHAMMER
from rackwright.store.db.session import Session
from rackwright.store.machines.nodes import update_node


def check_wipes(wipes: Sequence[InstallWipes], digest: str | None, where: str) -> None:
    """Refuse what cannot be installed as people wrote it, and to lose data that the caller did not see.

    `where` says how the caller sees it and gets its digest. A `digest` that was given was compared before.
    """
    problems = blocking_problems(wipes)
    if problems:
        node, problem = problems[0]
        more = f" ({len(problems) - 1} more: see the plan)" if len(problems) > 1 else ""
        raise Invalid(f"{node} cannot be installed: {problem}{more}")
    with_data = disks_with_data(wipes)
    if with_data and digest is None:
        raise DigestRequired(
            f"This wipes data. Look at it, and send the digest of what you saw: {where}. "
            f"What is lost: {name_data(with_data)}"
        )


async def confirm_wipes(session: Session, wipes: Iterable[InstallWipes]) -> None:
    """Record that what is on the disks of these installs now may be lost, in place of what was confirmed before."""
    for wiped in wipes:
        await _store_confirmed(session, wiped.node_role_id, confirmed_fingerprints(wiped.disks))


async def read_confirmed_wipes(session: Session, node_role_id: int) -> JsonObject:
    """Return the fingerprints that were confirmed, by the names of the disks."""
    disks: JsonObject | None = await session.value(
        "SELECT disks FROM confirmed_wipes WHERE node_role_id = :id", id=node_role_id
    )
    return disks or {}


async def record_disks_left(
    session: Session, node_id: int, node_role_id: int, wiped: Json, disks: Sequence[Json]
) -> None:
    """Record what an installer left on the disks: that is what is known of them from now on.

    What it left on those that it was to wipe, `wiped`, came from the install, and may be lost when that is tried again.
    After one that succeeded `use_up_confirmation` ends that.
    """
    row = await session.row("SELECT discovery, reported_by FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    assert row is not None, "it has an install attempt"
    if row.reported_by.get("disks") != SLEDGEHAMMER:
        reported_by = {**row.reported_by, "disks": SLEDGEHAMMER}
        await session.run("UPDATE nodes SET reported_by = :it WHERE id = :id", it=Jsonb(reported_by), id=node_id)
    await update_node(session, node_id, {"discovery": {**row.discovery, "disks": [*disks]}})
    confirmed = await read_confirmed_wipes(session, node_role_id)
    await _store_confirmed(session, node_role_id, carry_confirmation(wiped, [*disks], confirmed))


async def use_up_confirmation(session: Session, node_role_id: int) -> None:
    """Forget what was confirmed: the install has written its system, and from now on the disks hold that one's data.

    Their fingerprints stay while it fills them, so nothing else tells the new data from what was confirmed.
    """
    await session.run("DELETE FROM confirmed_wipes WHERE node_role_id = :id", id=node_role_id)


async def _store_confirmed(session: Session, node_role_id: int, disks: JsonObject) -> None:
    await session.run(
        "INSERT INTO confirmed_wipes (node_role_id, disks) SELECT nr.id, :disks FROM node_roles nr WHERE nr.id = :id"
        " ON CONFLICT (node_role_id) DO UPDATE SET disks = EXCLUDED.disks",
        id=node_role_id,
        disks=Jsonb(disks),
    )
