"""Install attempts as stored: any server may advance them, each step in one transaction with what it decides."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Row

from rackwright.domain.catalogue import Json, JsonObject
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
from rackwright.store.machines.confirmed_wipes import record_disks_left, use_up_confirmation
from rackwright.store.machines.keys import is_pinned, pin_key
from rackwright.store.machines.nodes import select_noderole_ids, update_node
from rackwright.store.networks.allocations import is_plausible_source
from rackwright.store.runs.run_logs import append_logs
from rackwright.store.runs.settling import FinishedRun, settle_runs

DEFAULT_MAX_INSTALLS = 20


@dataclass(frozen=True)
class AttemptRecord:
    """An install attempt with its frozen configuration, progress and log."""

    id: int
    node_id: int
    node_role_id: int
    run_id: int
    target_os: str
    frozen: JsonObject
    generation: int | None
    resetting: bool
    """A server is resetting the machine now, or died while doing so: the machine may be reset at any moment."""
    state: Attempt
    progress: JsonObject
    """The last report of the installer."""
    log: InstallLog
    now: float
    """The database's clock, in seconds."""


async def open_attempt(
    session: Session, run: Run, target_os: str, frozen: JsonObject, notes: Sequence[str] = ()
) -> None:
    """Freeze what is to be installed. From here on any server may advance the attempt. The notes go to the run's log.

    The run is accepted in this same transaction: a worker that dies before has done nothing, and one that dies after is
    not missed.
    """
    if not await settle_runs(session, [FinishedRun(run.id, accepted=True)]):
        if await session.value("SELECT 1 FROM install_attempts WHERE run_id = :id", id=run.id):
            return  # an earlier call did it, but its answer was lost
        raise Conflict(Rule.BUSY, f"Run {run.id} of {run.role} on {run.node} is over: somebody else has it.")
    earlier = await _lock_attempt(session, "node_id = :id AND ended_at IS NULL", id=run.node_id)
    if earlier is not None:
        await apply_step(session, earlier, install.on_expired(earlier.state, "A newer install took its place"))
    node = await session.row(f"SELECT boot_id, {_NOW} AS now FROM nodes WHERE id = :id", id=run.node_id)
    if node is None:
        raise NotFound("node", run.node_id)
    log, lines = install_log.begin_log(target_os, node.now)
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
    await _append_log_lines(session, run.id, [*([f"[trace {run.trace}]"] if run.trace else []), *notes, *lines])
    await _notify_installs(session)


async def select_named_chunks(session: Session) -> set[str]:
    """Return the digests of the pieces of images that the installs name which have not ended."""
    rows = await session.rows(
        "SELECT DISTINCT frozen -> 'image' -> 'chunks' AS chunks FROM install_attempts WHERE ended_at IS NULL"
    )
    return {chunk["sha256"] for row in rows for chunk in row.chunks or ()}


async def end_attempt(session: Session, run_id: int, reason: str) -> None:
    """End the open attempt of a run together with the run: no boot after this one may be the installer."""
    attempt = await _lock_attempt(session, "run_id = :id AND ended_at IS NULL", id=run_id)
    if attempt is not None:
        await apply_step(session, attempt, install.on_expired(attempt.state, reason))


async def _notify_installs(session: Session) -> None:
    await session.run(f"NOTIFY {INSTALL_CHANNEL}")


# --- reading and writing an attempt

_NOW = "extract(epoch FROM now())::float8"

_SELECT = f"""
SELECT id, node_id, node_role_id, run_id, stage, target_os, frozen, generation, source, boot_id, installer_boot_id,
       error, progress, coalesce(resetting_until > now(), false) AS resetting, {_NOW} AS now
FROM install_attempts
"""


def _build_record(row: Row[Any]) -> AttemptRecord:
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
    """Return how far the log of an attempt has come, as `_store_progress` stored it.

    Where `stored` is None, the attempt began before such logs were stored.
    """
    if stored is None:
        return InstallLog()
    installer_stage = stored["at"] and InstallerStage(**stored["at"])
    return InstallLog(**{**stored, "at": installer_stage, "earlier": tuple(stored["earlier"])})


async def _lock_attempt(session: Session, where: str, **values: object) -> AttemptRecord | None:
    row = await session.row(f"{_SELECT} WHERE {where} FOR UPDATE", **values)
    return None if row is None else _build_record(row)


async def apply_step(session: Session, attempt: AttemptRecord, step: Step) -> Step:
    """Store a step and do what it asks of the database; `due_actions` selects what it asks of the world."""
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
        log_and_lines = install_log.log_stage_change(
            attempt.log, attempt.state.stage, after, attempt.target_os, attempt.now
        )
        await _store_progress(session, attempt, attempt.progress, *log_and_lines)
    for act in step.acts:
        await _perform_act(session, attempt, after, act)
    if after != attempt.state:
        await _notify_installs(session)
    return step


async def _store_progress(
    session: Session, attempt: AttemptRecord, progress: JsonObject, log: InstallLog, lines: Lines
) -> None:
    """Store how far an attempt is, and write about it into the log of its run, while the attempt is locked."""
    await session.run(
        "UPDATE install_attempts SET progress = :progress WHERE id = :id",
        progress=Jsonb({**progress, "log": asdict(log)}),
        id=attempt.id,
    )
    await _append_log_lines(session, attempt.run_id, lines)


async def _append_log_lines(session: Session, run_id: int, lines: Lines) -> None:
    if lines:
        await append_logs(session, [(run_id, "".join(f"{line}\n" for line in lines))])


async def _perform_act(session: Session, attempt: AttemptRecord, after: Attempt, act: Act) -> None:
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
        await move_noderoles(session, Trigger.REBOOT, await select_noderole_ids(session, attempt.node_id, COMMITTED))


async def _rerun_if_rebooted(session: Session, attempt: AttemptRecord) -> None:
    """Have noderoles run again if the machine booted during a failed attempt.

    Such a boot was only noted until now. It never counts for the install itself.
    """
    boot_id = await session.value("SELECT boot_id FROM nodes WHERE id = :id", id=attempt.node_id)
    if boot_id != attempt.state.boot_id:
        others = set(await select_noderole_ids(session, attempt.node_id, COMMITTED)) - {attempt.node_role_id}
        await move_noderoles(session, Trigger.REBOOT, others)


# --- advancing


async def advance_attempts(session: Session, max_installs: int = DEFAULT_MAX_INSTALLS) -> None:
    """Advance every open attempt that may go on without the machine: room, deadline, providers. Needs INSTALL_LOCK.

    An attempt that another transaction holds is just being advanced, and that ends in another call of this.
    """
    reasons_over = {row.id: _explain_over(row) for row in await session.rows(_SELECT_OVER)}
    rows = await session.rows(
        f"{_SELECT} WHERE ended_at IS NULL AND (stage IN ('waiting', 'publishing') OR id = ANY (:over))"
        " ORDER BY id FOR UPDATE SKIP LOCKED",
        over=list(reasons_over),
    )
    under_way = await session.value(
        "SELECT count(*) FROM install_attempts WHERE ended_at IS NULL AND stage <> 'waiting'"
    )
    for row in rows:
        attempt = _build_record(row)
        if attempt.id in reasons_over:
            await apply_step(session, attempt, install.on_expired(attempt.state, reasons_over[attempt.id]))
        elif attempt.state.stage is Stage.WAITING and under_way < max_installs:
            await apply_step(session, attempt, install.begin(attempt.state))
            under_way += 1
        elif attempt.state.stage is Stage.PUBLISHING and not await _lagging_providers(session, attempt):
            await apply_step(session, attempt, install.on_published(attempt.state))


async def _lagging_providers(session: Session, attempt: AttemptRecord) -> list[str]:
    assert attempt.generation is not None, "an attempt that publishes has a generation"
    return await lagging_providers(session, attempt.node_id, attempt.generation)


# Attempts that must end although nothing ended them: past their deadline, or their run ended without them.
_SELECT_OVER = """
SELECT a.id, r.state, r.error, r.deadline FROM install_attempts a LEFT JOIN runs r ON r.id = a.run_id
WHERE a.ended_at IS NULL
  AND (r.id IS NULL OR r.state <> 'accepted' OR now() > r.started_at + r.deadline * interval '1 second')
"""


def _explain_over(row: Row[Any]) -> str:
    if row.state == "accepted":
        return f"The installer did not finish within {row.deadline:g} s"
    return f"Its run is over: {row.error or row.state or 'it is gone'}"


@dataclass(frozen=True)
class DueAction:
    """An action on a machine that is due for an attempt."""

    attempt_id: int
    node_id: int
    act: Act


async def due_actions(session: Session, lease: float = 30.0, except_nodes: Collection[int] = ()) -> list[DueAction]:
    """Return the actions that are due now, each for one server at a time; one not done in time is due again.

    `except_nodes` are left to other servers.
    """
    rows = await session.rows(
        """
        UPDATE install_attempts SET acting_until = now() + :lease * interval '1 second'
        WHERE id IN (SELECT id FROM install_attempts WHERE ended_at IS NULL
            AND (stage = 'rebooting' AND rebooted_at IS NULL OR stage = 'probing')
            AND coalesce(acting_until < now(), true) AND node_id <> ALL (:except_nodes)
            ORDER BY id FOR UPDATE SKIP LOCKED)
        RETURNING id, node_id, stage
        """,
        lease=lease,
        except_nodes=list(except_nodes),
    )
    return [DueAction(row.id, row.node_id, Act.REBOOT if row.stage == Stage.REBOOTING else Act.PROBE) for row in rows]


async def begin_reset(session: Session, action: DueAction, lease: float) -> bool:
    """Return whether to reset the machine now; no secret is handed out until the reset is done.

    A server that was paused in between might else reset a machine that is long installing.
    """
    return bool(
        await session.run(
            "UPDATE install_attempts SET resetting_until = now() + :lease * interval '1 second' WHERE id = :id"
            " AND acting_until > now() AND stage = 'rebooting' AND rebooted_at IS NULL",
            id=action.attempt_id,
            lease=lease,
        )
    )


async def record_reset(session: Session, attempt_id: int) -> None:
    """Record that the machine was reset."""
    await session.run(
        "UPDATE install_attempts SET rebooted_at = now(), resetting_until = NULL WHERE id = :id", id=attempt_id
    )


async def release_action(session: Session, action: DueAction) -> None:
    """Make an action due again at once, because this server did nothing to the machine. Wakes the other servers."""
    stage = Stage.REBOOTING if action.act is Act.REBOOT else Stage.PROBING
    changed = await session.run(
        "UPDATE install_attempts SET acting_until = NULL WHERE id = :id AND stage = :stage AND ended_at IS NULL",
        id=action.attempt_id,
        stage=stage.value,
    )
    if changed and action.act is Act.REBOOT:
        await _notify_installs(session)


async def record_probe(session: Session, attempt_id: int, *, ok: bool, error: str = "") -> None:
    """Record the result of a probe of the machine."""
    attempt = await _lock_attempt(session, "id = :id", id=attempt_id)
    if attempt is not None:
        await apply_step(session, attempt, install.on_probed(attempt.state, ok=ok, error=error))


async def record_set_up_failure(session: Session, attempt_id: int, error: str) -> None:
    """Record that cloud-init of the installed system failed."""
    attempt = await _lock_attempt(session, "id = :id", id=attempt_id)
    if attempt is not None:
        await apply_step(session, attempt, install.on_set_up_failed(attempt.state, error))


async def log_note(session: Session, attempt_id: int, text: str) -> None:
    """Write a line about an open attempt into the log of its run."""
    attempt = await _lock_attempt(session, "id = :id AND ended_at IS NULL", id=attempt_id)
    if attempt is not None:
        await _append_log_lines(session, attempt.run_id, [install_log.one_line(text)])


async def read_set_up_input(session: Session, attempt_id: int) -> JsonObject:
    """Return what the run of an open attempt was given, its secrets sealed; empty if no image was installed.

    The installer is told nothing of what is only for the installed system.
    """
    row = await session.row(
        "SELECT r.staged FROM install_attempts a JOIN runs r ON r.id = a.run_id"
        " WHERE a.id = :id AND a.ended_at IS NULL AND a.frozen ? 'image'",
        id=attempt_id,
    )
    return {} if row is None else row.staged or {}


# --- requests of machines


async def hand_out_secret(
    session: Session, node_id: int, source: str, secret: str, *, has_network: bool = True
) -> bool:
    """Record a new secret as that of a node's install, and return whether its machine may have it.

    A secret is handed out once: a second fetch fails the attempt.
    It is not handed to a machine that may be reset any moment: the boot after that would be the second to fetch it. Nor
    to an address that is not the node's, where the node has one. `has_network` False: the machine is simulated.
    """
    if not await session.value("SELECT identity_confirmed FROM nodes WHERE id = :id", id=node_id):
        return False
    attempt = await _lock_attempt(session, "node_id = :id AND ended_at IS NULL", id=node_id)
    if attempt is None:
        return False
    if has_network and not await is_plausible_source(session, node_id, source):
        raise Conflict(Rule.BUSY, "The machine that is to be installed has another address than you.")
    if attempt.resetting and attempt.state.stage is Stage.REBOOTING:
        raise Conflict(Rule.BUSY, "This machine is being reset just now. Boot it once more.")
    step = install.on_secret_fetched(attempt.state, source)
    if step.refused:
        return False  # and not recorded: anybody may ask for it, as often as they like
    await apply_step(session, attempt, step)
    if step.attempt.stage is not Stage.INSTALLING:
        return False
    await session.run(
        "UPDATE install_attempts SET secret_hash = :hash WHERE id = :id", hash=_hash(secret), id=attempt.id
    )
    return True


async def read_install_config(session: Session, secret: str, source: str) -> JsonObject:
    attempt = await _lock_attempt_by_secret(session, secret)
    step = await apply_step(session, attempt, install.on_installer_progress(attempt.state, source))
    _check_not_refused(step)
    return {"os": attempt.target_os, **attempt.frozen}


async def record_install_progress(session: Session, secret: str, source: str, report: Report) -> None:
    """Record how far an installer is. A report that was sent twice, or comes too late, changes nothing."""
    attempt = await _lock_attempt_by_secret(session, secret)
    _check_not_refused(await apply_step(session, attempt, install.on_installer_progress(attempt.state, source)))
    after = install_log.log_report(attempt.log, report, attempt.now)
    if after is None:
        return
    shown = {name: value for name, value in asdict(report).items() if value is not None}
    await _store_progress(session, attempt, shown, *after)
    if (report.stage, report.percent) != (attempt.progress.get("stage"), attempt.progress.get("percent")):
        await emit(session, "install.progress", attempt.id, node_id=attempt.node_id, data=shown)


async def record_install_result(
    session: Session,
    secret: str,
    source: str,
    *,
    ok: bool,
    error: str = "",
    key: str | None = None,
    disks: Sequence[Json] | None = None,
) -> None:
    """Record the installer's result.

    `key` is that of the system it installed, or its own if it failed and stays to be looked at. Only the holder of the
    secret changes the key of a node without a person. `disks` is what it left on the disks, if it wrote to them: that
    is what is known of them from now on, and an install that failed may be tried again on it.

    A result that was taken already changes nothing, and is no error: the answer was lost, and an installer that is
    refused boots the machine anew, which loses what there is to look at.
    """
    attempt = await _lock_attempt_by_secret(session, secret)
    is_taken = install.is_end_taken(attempt.state, source, ok=ok, error=error)
    if is_taken and (key is None or await is_pinned(session, attempt.node_id, key)):
        return
    _check_not_refused(
        await apply_step(session, attempt, install.on_installer_end(attempt.state, source, ok=ok, error=error))
    )
    if key is not None:
        await pin_key(session, attempt.node_id, key)
    if disks is not None:
        wiped = attempt.frozen.get("wipes")
        await record_disks_left(session, attempt.node_id, attempt.node_role_id, wiped, disks)
    if ok:
        await use_up_confirmation(session, attempt.node_role_id)


async def _lock_attempt_by_secret(session: Session, secret: str) -> AttemptRecord:
    attempt = await _lock_attempt(session, "secret_hash = :hash", hash=_hash(secret))
    if attempt is None:
        # It is sent before it is recorded, and its holder may be quicker than that: wait for those on their way.
        await session.run(
            "SELECT id FROM install_attempts WHERE ended_at IS NULL AND stage = :stage ORDER BY id FOR SHARE",
            stage=Stage.REBOOTING.value,
        )
        attempt = await _lock_attempt(session, "secret_hash = :hash", hash=_hash(secret))
    if attempt is None:
        raise NotFound("install attempt with that secret", "")
    return attempt


def _check_not_refused(step: Step) -> None:
    if step.refused:
        raise Conflict(Rule.BUSY, f"This changes nothing: {step.refused}.")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def record_boot_during_install(session: Session, node_id: int, boot_id: str, bootenv: str) -> bool:
    """Hand a boot of a machine to its open install attempt, and return whether there is one that goes on."""
    attempt = await _lock_attempt(session, "node_id = :id AND ended_at IS NULL", id=node_id)
    if attempt is None:
        return False
    step = await apply_step(session, attempt, install.on_boot(attempt.state, boot_id, bootenv))
    return not step.attempt.over
