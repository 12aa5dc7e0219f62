"""Install attempts as stored: any server may advance them, each step in one transaction with what it decides."""

import hashlib
import secrets
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Row

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.machines import install, install_log
from rackwright.domain.machines.install import LOCAL, SLEDGEHAMMER, Act, Attempt, Stage, Step
from rackwright.domain.machines.install_log import InstallerStage, InstallLog, Lines, Report
from rackwright.domain.runs import Run
from rackwright.domain.states import COMMITTED, Trigger
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.machines.boot import INSTALL_CHANNEL, lagging_providers, set_bootenv
from rackwright.store.machines.keys import pin_key
from rackwright.store.machines.nodes import noderoles_of, update_node
from rackwright.store.networks.allocations import fits_allocation
from rackwright.store.runs.run_logs import append_logs
from rackwright.store.runs.settling import FinishedRun, settle_runs

DEFAULT_MAX_INSTALLS = 20


@dataclass(frozen=True)
class AttemptRecord:
    """An attempt, and what belongs to it."""

    id: int
    node_id: int
    node_role_id: int
    run_id: int
    target_os: str
    frozen: JsonObject
    generation: int | None
    resetting: bool
    """A server is at resetting the machine now, or died at it: what it has booted may be reset any moment."""
    state: Attempt
    progress: JsonObject
    """What the installer said last."""
    log: InstallLog
    now: float
    """The database's clock, in seconds."""


async def open_attempt(session: Session, run: Run, target_os: str, frozen: JsonObject) -> None:
    """Freeze what is to be installed. From here on the attempt is advanced by whoever looks.

    The run is accepted in this same transaction: a worker that dies before has done nothing, and one that dies after
    is not missed.
    """
    if not await settle_runs(session, [FinishedRun(run.id, accepted=True)]):
        if await session.value("SELECT 1 FROM install_attempts WHERE run_id = :id", id=run.id):
            return  # it was done, but the answer was lost
        raise Conflict(Rule.BUSY, f"Run {run.id} of {run.role} on {run.node} is over: somebody else has it.")
    earlier = await _locked(session, "node_id = :id AND ended_at IS NULL", id=run.node_id)
    if earlier is not None:
        await take(session, earlier, install.expired(earlier.state, "A newer install took its place"))
    node = await session.row(f"SELECT boot_id, {_NOW} AS now FROM nodes WHERE id = :id", id=run.node_id)
    if node is None:
        raise NotFound("node", run.node_id)
    log, lines = install_log.begin(target_os, node.now)
    await session.run(
        "INSERT INTO install_attempts (node_id, node_role_id, run_id, stage, target_os, frozen, boot_id, progress)"
        " VALUES (:node_id, :node_role_id, :run_id, :stage, :target_os, :frozen, :boot_id, :progress)",
        node_id=run.node_id,
        node_role_id=run.node_role_id,
        run_id=run.id,
        stage=Stage.WAITING.value,
        target_os=target_os,
        frozen=Jsonb(frozen),
        boot_id=node.boot_id,
        progress=Jsonb({"log": asdict(log)}),
    )
    await _write(session, run.id, [*([f"[trace {run.trace}]"] if run.trace else []), *lines])
    await _wake(session)


async def end_attempt(session: Session, run_id: int, why: str) -> None:
    """End the attempt of a run, if it has one, together with it: no boot after this one may be the installer."""
    attempt = await _locked(session, "run_id = :id AND ended_at IS NULL", id=run_id)
    if attempt is not None:
        await take(session, attempt, install.expired(attempt.state, why))


async def _wake(session: Session) -> None:
    await session.run(f"NOTIFY {INSTALL_CHANNEL}")


# --- reading and writing one

_NOW = "extract(epoch FROM now())::float8"

_SELECT = f"""
SELECT id, node_id, node_role_id, run_id, stage, target_os, frozen, generation, source, boot_id, installer_boot_id,
       error, progress, coalesce(resetting_until > now(), false) AS resetting, {_NOW} AS now
FROM install_attempts
"""


def _record(row: Row[Any]) -> AttemptRecord:
    state = Attempt(Stage(row.stage), row.boot_id, row.installer_boot_id, row.source, row.error)
    return AttemptRecord(
        id=row.id,
        node_id=row.node_id,
        node_role_id=row.node_role_id,
        run_id=row.run_id,
        target_os=row.target_os,
        frozen=row.frozen,
        generation=row.generation,
        resetting=row.resetting,
        state=state,
        progress=row.progress,
        log=_read_log(row.progress.get("log")),
        now=row.now,
    )


def _read_log(stored: dict[str, Any] | None) -> InstallLog:
    """How far the log of an attempt has come, as `_tell` stored it; None: it began before such logs were kept."""
    if stored is None:
        return InstallLog()
    at = stored["at"] and InstallerStage(**stored["at"])
    return InstallLog(**{**stored, "at": at, "earlier": tuple(stored["earlier"])})


async def _locked(session: Session, where: str, **values: object) -> AttemptRecord | None:
    row = await session.row(f"{_SELECT} WHERE {where} FOR UPDATE", **values)
    return None if row is None else _record(row)


async def take(session: Session, attempt: AttemptRecord, step: Step) -> Step:
    """Store a step and do what it asks of the database; what it asks of the world is found by `due_actions`."""
    if step.refused:
        await emit(
            session,
            "install.refused",
            attempt.id,
            node_id=attempt.node_id,
            data={"stage": attempt.state.stage, "why": step.refused},
        )
        return step
    after = step.attempt
    await session.run(
        "UPDATE install_attempts SET stage = :stage, source = :source, installer_boot_id = :installer_boot_id,"
        " error = :error, acting_until = NULL, ended_at = CASE WHEN :over THEN now() END WHERE id = :id",
        id=attempt.id,
        stage=after.stage.value,
        source=after.source,
        installer_boot_id=after.installer_boot_id,
        error=after.error,
        over=after.over,
    )
    if after.stage is not attempt.state.stage:
        await emit(session, f"install.{after.stage}", attempt.id, node_id=attempt.node_id, data={"error": after.error})
        moved = install_log.moved(attempt.log, attempt.state.stage, after, attempt.target_os, attempt.now)
        await _tell(session, attempt, attempt.progress, *moved)
    for act in step.acts:
        await _do(session, attempt, after, act)
    if after != attempt.state:
        await _wake(session)
    return step


async def _tell(session: Session, attempt: AttemptRecord, progress: JsonObject, log: InstallLog, lines: Lines) -> None:
    """Store how far an attempt is, and write about it into the log of its run, while the attempt is locked."""
    await session.run(
        "UPDATE install_attempts SET progress = :progress WHERE id = :id",
        progress=Jsonb({**progress, "log": asdict(log)}),
        id=attempt.id,
    )
    await _write(session, attempt.run_id, lines)


async def _write(session: Session, run_id: int, lines: Lines) -> None:
    if lines:
        await append_logs(session, [(run_id, "".join(f"{line}\n" for line in lines))])


async def _do(session: Session, attempt: AttemptRecord, after: Attempt, act: Act) -> None:
    if act is Act.PUBLISH_INSTALLER:
        await update_node(session, attempt.node_id, {"alive": False})
        generation = await set_bootenv(session, attempt.node_id, install.installer_bootenv(attempt.target_os))
        await session.run("UPDATE install_attempts SET generation = :n WHERE id = :id", n=generation, id=attempt.id)
    elif act is Act.PUBLISH_SLEDGEHAMMER:
        await set_bootenv(session, attempt.node_id, SLEDGEHAMMER)
    elif act is Act.PUBLISH_LOCAL:
        await set_bootenv(session, attempt.node_id, LOCAL)
    elif act is Act.ALARM:
        await emit(session, "install.alarm", attempt.id, node_id=attempt.node_id, data={"error": after.error})
    elif act is Act.FAIL:
        await settle_runs(session, [FinishedRun(attempt.run_id, ok=False, error=after.error)])
        await _rerun_if_rebooted(session, attempt)
    elif act is Act.SUCCEED:
        await settle_runs(session, [FinishedRun(attempt.run_id, wall={"installed": {"os": attempt.target_os}})])
        await update_node(session, attempt.node_id, {"alive": True})
        await move_noderoles(session, Trigger.REBOOT, await noderoles_of(session, attempt.node_id, COMMITTED))


async def _rerun_if_rebooted(session: Session, attempt: AttemptRecord) -> None:
    """A boot during the attempt was only noted; it counts now, but never for the install itself."""
    boot_id = await session.value("SELECT boot_id FROM nodes WHERE id = :id", id=attempt.node_id)
    if boot_id != attempt.state.boot_id:
        others = set(await noderoles_of(session, attempt.node_id, COMMITTED)) - {attempt.node_role_id}
        await move_noderoles(session, Trigger.REBOOT, others)


# --- advancing


async def advance(session: Session, max_installs: int = DEFAULT_MAX_INSTALLS) -> None:
    """Look at every open attempt that may go on without the machine: room, deadline, providers. Needs INSTALL_LOCK.

    One that somebody else holds is just being advanced, which ends in another look.
    """
    over = {row.id: _why_over(row) for row in await session.rows(_OVER)}
    rows = await session.rows(
        f"{_SELECT} WHERE ended_at IS NULL AND (stage IN ('waiting', 'publishing') OR id = ANY (:over))"
        " ORDER BY id FOR UPDATE SKIP LOCKED",
        over=list(over),
    )
    under_way = await session.value(
        "SELECT count(*) FROM install_attempts WHERE ended_at IS NULL AND stage <> 'waiting'"
    )
    for row in rows:
        attempt = _record(row)
        if attempt.id in over:
            await take(session, attempt, install.expired(attempt.state, over[attempt.id]))
        elif attempt.state.stage is Stage.WAITING and under_way < max_installs:
            await take(session, attempt, install.begin(attempt.state))
            under_way += 1
        elif attempt.state.stage is Stage.PUBLISHING and not await _lagging(session, attempt):
            await take(session, attempt, install.published(attempt.state))


async def _lagging(session: Session, attempt: AttemptRecord) -> list[str]:
    assert attempt.generation is not None, "an attempt that publishes has a generation"
    return await lagging_providers(session, attempt.node_id, attempt.generation)


# Attempts that must end although nobody told them: past their deadline, or their run ended without them.
_OVER = """
SELECT a.id, r.state, r.error, r.deadline FROM install_attempts a LEFT JOIN runs r ON r.id = a.run_id
WHERE a.ended_at IS NULL
  AND (r.id IS NULL OR r.state <> 'accepted' OR now() > r.started_at + r.deadline * interval '1 second')
"""


def _why_over(row: Row[Any]) -> str:
    if row.state == "accepted":
        return f"The installer did not finish within {row.deadline:g} s"
    return f"Its run is over: {row.error or row.state or 'it is gone'}"


@dataclass(frozen=True)
class Action:
    """Something to be done in the world for an attempt."""

    attempt_id: int
    node_id: int
    act: Act


async def due_actions(session: Session, lease: float = 30.0) -> list[Action]:
    """What is to be done now, each for one server at a time; what is not reported done in time is due again."""
    rows = await session.rows(
        """
        UPDATE install_attempts SET acting_until = now() + :lease * interval '1 second'
        WHERE id IN (SELECT id FROM install_attempts WHERE ended_at IS NULL
            AND (stage = 'rebooting' AND rebooted_at IS NULL OR stage = 'probing')
            AND coalesce(acting_until < now(), true) ORDER BY id FOR UPDATE SKIP LOCKED)
        RETURNING id, node_id, stage
        """,
        lease=lease,
    )
    return [Action(row.id, row.node_id, Act.REBOOT if row.stage == Stage.REBOOTING else Act.PROBE) for row in rows]


async def resetting(session: Session, action: Action, lease: float) -> bool:
    """Whether to reset the machine now; no secret is handed out until that is done. A server that was paused in between
    might else reset a machine that is long installing."""
    return bool(
        await session.run(
            "UPDATE install_attempts SET resetting_until = now() + :lease * interval '1 second' WHERE id = :id"
            " AND acting_until > now() AND stage = 'rebooting' AND rebooted_at IS NULL",
            id=action.attempt_id,
            lease=lease,
        )
    )


async def rebooted(session: Session, attempt_id: int) -> None:
    await session.run(
        "UPDATE install_attempts SET rebooted_at = now(), resetting_until = NULL WHERE id = :id", id=attempt_id
    )


async def look_again(session: Session, attempt_id: int) -> None:
    """Nothing came of a look: another one is due."""
    await session.run(
        "UPDATE install_attempts SET acting_until = NULL WHERE id = :id AND stage = 'probing' AND ended_at IS NULL",
        id=attempt_id,
    )


async def probed(session: Session, attempt_id: int, *, ok: bool, error: str = "") -> None:
    attempt = await _locked(session, "id = :id", id=attempt_id)
    if attempt is not None:
        await take(session, attempt, install.probed(attempt.state, ok=ok, error=error))


# --- what machines say


async def fetch_secret(session: Session, node_id: int, source: str, *, has_network: bool = True) -> str | None:
    """The one-time secret of a node's install; None if there is none to be had. A second fetch fails the attempt.

    It is not handed to a machine that may be reset any moment: the boot after that would be the second to fetch it.
    Nor to an address that is not the node's, where it has one. `has_network` False: the machine is simulated.
    """
    if not await session.value("SELECT identity_confirmed FROM nodes WHERE id = :id", id=node_id):
        return None
    attempt = await _locked(session, "node_id = :id AND ended_at IS NULL", id=node_id)
    if attempt is None:
        return None
    if has_network and not await fits_allocation(session, node_id, source):
        raise Conflict(Rule.BUSY, "The machine that is to be installed has another address than you.")
    if attempt.resetting and attempt.state.stage is Stage.REBOOTING:
        raise Conflict(Rule.BUSY, "This machine is being reset just now. Boot it once more.")
    step = install.fetched(attempt.state, source)
    if step.refused:
        return None  # and not noted: anybody may ask for it, as often as he likes
    await take(session, attempt, step)
    if step.attempt.stage is not Stage.INSTALLING:
        return None
    secret = secrets.token_urlsafe(32)
    await session.run(
        "UPDATE install_attempts SET secret_hash = :hash WHERE id = :id", hash=_hash(secret), id=attempt.id
    )
    return secret


async def install_config(session: Session, secret: str, source: str) -> JsonObject:
    attempt = await _by_secret(session, secret)
    step = await take(session, attempt, install.progressing(attempt.state, source))
    _check_taken(step)
    return {"os": attempt.target_os, **attempt.frozen}


async def install_progress(session: Session, secret: str, source: str, report: Report) -> None:
    """Show how far an installer is. A report that was sent twice, or comes too late, changes nothing."""
    attempt = await _by_secret(session, secret)
    _check_taken(await take(session, attempt, install.progressing(attempt.state, source)))
    after = install_log.reported(attempt.log, report, attempt.now)
    if after is None:
        return
    shown = {name: value for name, value in asdict(report).items() if value is not None}
    await _tell(session, attempt, shown, *after)
    if (report.stage, report.percent) != (attempt.progress.get("stage"), attempt.progress.get("percent")):
        await emit(session, "install.progress", attempt.id, node_id=attempt.node_id, data=shown)


async def install_result(
    session: Session, secret: str, source: str, *, ok: bool, error: str = "", key: str | None = None
) -> None:
    """The installer's last word. `key` is that of the system it installed, or its own if it failed and stays to be
    looked at. Nobody but the holder of the secret changes the key of a node without a person."""
    attempt = await _by_secret(session, secret)
    _check_taken(await take(session, attempt, install.reported(attempt.state, source, ok=ok, error=error)))
    if key is not None:
        await pin_key(session, attempt.node_id, key)


async def _by_secret(session: Session, secret: str) -> AttemptRecord:
    attempt = await _locked(session, "secret_hash = :hash", hash=_hash(secret))
    if attempt is None:
        raise NotFound("install attempt with that secret", "")
    return attempt


def _check_taken(step: Step) -> None:
    if step.refused:
        raise Conflict(Rule.BUSY, f"This changes nothing: {step.refused}.")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def boot_during_install(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """A boot of a machine that is being installed belongs to its attempt; whether there is one."""
    attempt = await _locked(session, "node_id = :id AND ended_at IS NULL", id=node_id)
    if attempt is None:
        return False
    await take(session, attempt, install.booted(attempt.state, boot_id, bootenv))
    return True
