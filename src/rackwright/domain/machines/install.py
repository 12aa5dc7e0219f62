"""The state machine of an install attempt. Pure: each event returns the next stage and the acts that the server owes.

Nodes report, the server decides. A message that does not belong to the stage, the attempt or the boot it speaks of
changes nothing. Whatever fails, the next boot is never again the installer unless a person says so.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Stage(StrEnum):
    """The stages of an attempt. Only append."""

    WAITING = "waiting"
    """It waits because as many installs as may run at once are under way."""
    PUBLISHING = "publishing"
    """The wanted boot is written down; every boot provider must serve it before the machine is touched."""
    REBOOTING = "rebooting"
    """The machine is being told to boot from the network."""
    INSTALLING = "installing"
    """The installer has fetched its secret, which happens once, and is at work."""
    BOOTING = "booting"
    """The installer reported success; the machine must come up from its own disk."""
    PROBING = "probing"
    """The machine came up from its own disk; now the server checks the installed system itself."""
    DONE = "done"
    FAILED = "failed"


ENDED = frozenset({Stage.DONE, Stage.FAILED})

SLEDGEHAMMER = "sledgehammer"
LOCAL = "local"


def installer_bootenv(target_os: str) -> str:
    return f"{target_os}-install"


class Act(StrEnum):
    """What the server must do after a step. Each may be repeated safely."""

    PUBLISH_INSTALLER = "publish-installer"
    REBOOT = "reboot"
    PUBLISH_SLEDGEHAMMER = "publish-sledgehammer"
    PUBLISH_LOCAL = "publish-local"
    PROBE = "probe"
    SUCCEED = "succeed"
    FAIL = "fail"
    ALARM = "alarm"


@dataclass(frozen=True)
class Attempt:
    """An install attempt."""

    stage: Stage
    boot_id: str | None = None
    """The boot of the machine when the attempt began: a message that speaks of this boot is outdated."""
    installer_boot_id: str | None = None
    source: str | None = None
    """The address that the secret was fetched from; reports from other addresses are refused."""
    error: str = ""

    @property
    def over(self) -> bool:
        return self.stage in ENDED


@dataclass(frozen=True)
class Step:
    """The attempt after an event, and what the server must do."""

    attempt: Attempt
    acts: tuple[Act, ...] = ()
    refused: str = ""
    """Why the message changed nothing."""


def begin(attempt: Attempt) -> Step:
    """Begin an attempt that waited: fewer installs than allowed are under way."""
    if attempt.stage is not Stage.WAITING:
        return _refuse(attempt, f"the attempt is already {attempt.stage}")
    return Step(replace(attempt, stage=Stage.PUBLISHING), (Act.PUBLISH_INSTALLER,))


def on_published(attempt: Attempt) -> Step:
    """Take note that every boot provider serves the generation that boots the installer."""
    if attempt.stage is not Stage.PUBLISHING:
        return _refuse(attempt, f"the attempt is already {attempt.stage}")
    return Step(replace(attempt, stage=Stage.REBOOTING), (Act.REBOOT,))


def on_secret_fetched(attempt: Attempt, source: str) -> Step:
    """Take note that the secret was fetched. Once is the installer; twice is an alarm, and the end of the attempt."""
    if attempt.over:
        return _refuse(attempt, "the attempt is over")
    if attempt.stage in (Stage.WAITING, Stage.PUBLISHING):
        return _refuse(attempt, "the machine has not been told to boot its installer yet")
    if attempt.stage is not Stage.REBOOTING:
        failed = replace(
            attempt,
            stage=Stage.FAILED,
            error=f"The secret of this install was fetched a second time, from {source} (first from {attempt.source}). "
            "Somebody else may be on the provisioning network. Find out who, then reinstall.",
        )
        return Step(failed, (Act.ALARM, Act.PUBLISH_SLEDGEHAMMER, Act.FAIL))
    return Step(replace(attempt, stage=Stage.INSTALLING, source=source), (Act.PUBLISH_SLEDGEHAMMER,))


def on_installer_end(attempt: Attempt, source: str, *, ok: bool, error: str = "") -> Step:
    """Take the report of the installer on how it ended."""
    fault = _reporter_fault(attempt, source)
    if fault:
        return _refuse(attempt, fault)
    if not ok:
        failed = replace(attempt, stage=Stage.FAILED, error=_installer_error(error))
        return Step(failed, (Act.PUBLISH_SLEDGEHAMMER, Act.FAIL))
    return Step(replace(attempt, stage=Stage.BOOTING), (Act.PUBLISH_LOCAL,))


def is_end_taken(attempt: Attempt, source: str, *, ok: bool, error: str = "") -> bool:
    """Return whether the installer reports once more the very end that was taken from it before.

    The answer to its first report was lost. Once the machine has booted from its own disk, no installer is left to ask.
    """
    if source != attempt.source:
        return False
    if ok:
        return attempt.stage is Stage.BOOTING
    return attempt.stage is Stage.FAILED and attempt.error == _installer_error(error)


def _installer_error(error: str) -> str:
    return f"The installer failed: {error or 'it did not say why'}"


def on_installer_progress(attempt: Attempt, source: str) -> Step:
    """Take the report of the installer on how far it is."""
    fault = _reporter_fault(attempt, source)
    return _refuse(attempt, fault) if fault else Step(attempt)


def on_boot(attempt: Attempt, boot_id: str, bootenv: str) -> Step:
    """Take the report of the machine on a boot."""
    if attempt.over:
        return _refuse(attempt, "the attempt is over")
    if boot_id in (attempt.boot_id, attempt.installer_boot_id):
        return _refuse(attempt, "that boot is of the past")
    if attempt.stage is Stage.BOOTING and bootenv == LOCAL:
        return Step(replace(attempt, stage=Stage.PROBING), (Act.PROBE,))
    if attempt.stage is Stage.INSTALLING and bootenv == SLEDGEHAMMER:
        # The installer reports how it ended before it goes on as sledgehammer: one that did not is gone.
        failed = replace(
            attempt,
            stage=Stage.FAILED,
            error="The machine booted anew in the middle of its install: it lost its power, or was reset. "
            "Its disks may be half written. Look at it, then reinstall.",
        )
        return Step(failed, (Act.PUBLISH_SLEDGEHAMMER, Act.FAIL))
    if attempt.stage is Stage.INSTALLING and bootenv != LOCAL:
        return Step(replace(attempt, installer_boot_id=boot_id))
    return _refuse(attempt, f"a boot into {bootenv} means nothing while {attempt.stage}")


def on_probed(attempt: Attempt, *, ok: bool, error: str = "") -> Step:
    """Take the result of the server's check of the installed system."""
    if attempt.stage is not Stage.PROBING:
        return _refuse(attempt, f"nothing is to be probed while {attempt.stage}")
    if not ok:
        failed = replace(
            attempt, stage=Stage.FAILED, error=f"The installed system does not answer as it should: {error}"
        )
        return Step(failed, (Act.FAIL,))
    return Step(replace(attempt, stage=Stage.DONE), (Act.SUCCEED,))


def on_set_up_failed(attempt: Attempt, error: str) -> Step:
    """Take note that cloud-init of the installed system failed. The system runs, to be looked at."""
    if attempt.stage is not Stage.PROBING:
        return _refuse(attempt, f"cloud-init is not waited for while {attempt.stage}")
    text = f"The system is installed and runs, but its cloud-init failed: {error}"
    return Step(replace(attempt, stage=Stage.FAILED, error=text), (Act.FAIL,))


def on_expired(attempt: Attempt, why: str) -> Step:
    """End an attempt whose time is over, or which a person ended."""
    if attempt.over:
        return _refuse(attempt, "the attempt is over")
    failed = replace(attempt, stage=Stage.FAILED, error=f"{why} (it had come as far as {attempt.stage})")
    untouched = attempt.stage in (Stage.WAITING, Stage.BOOTING, Stage.PROBING)
    acts = (Act.FAIL,) if untouched else (Act.PUBLISH_SLEDGEHAMMER, Act.FAIL)
    return Step(failed, acts)


def _reporter_fault(attempt: Attempt, source: str) -> str:
    """Return why a report of an installer from `source` is not taken; an empty text if it is."""
    if attempt.over:
        return "the attempt is over"
    if attempt.stage is not Stage.INSTALLING:
        return f"no installer is at work while {attempt.stage}"
    if source != attempt.source:
        return "the secret was fetched from another address"
    return ""


def _refuse(attempt: Attempt, why: str) -> Step:
    return Step(attempt, refused=why)
