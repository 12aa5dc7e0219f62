"""The install attempt: every stage under every message, written out; then what the server must do after each step."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rackwright.domain.machines import install
from rackwright.domain.machines.install import ENDED, LOCAL, SLEDGEHAMMER, Act, Attempt, Stage, Step

OLD_BOOT, INSTALLER_BOOT, NEW_BOOT = "boot-before", "boot-installer", "boot-new"
HERE, ELSEWHERE = "192.0.2.10", "192.0.2.66"

MESSAGES: dict[str, Callable[[Attempt], Step]] = {
    "begin": install.begin,
    "published": install.on_published,
    "fetched": lambda attempt: install.on_secret_fetched(attempt, HERE),
    "fetched-elsewhere": lambda attempt: install.on_secret_fetched(attempt, ELSEWHERE),
    "progress": lambda attempt: install.on_installer_progress(attempt, HERE),
    "progress-elsewhere": lambda attempt: install.on_installer_progress(attempt, ELSEWHERE),
    "success": lambda attempt: install.on_installer_end(attempt, HERE, ok=True),
    "success-elsewhere": lambda attempt: install.on_installer_end(attempt, ELSEWHERE, ok=True),
    "failure": lambda attempt: install.on_installer_end(attempt, HERE, ok=False, error="no disk"),
    "failure-elsewhere": lambda attempt: install.on_installer_end(attempt, ELSEWHERE, ok=False),
    "boot-local": lambda attempt: install.on_boot(attempt, NEW_BOOT, LOCAL),
    "boot-sledgehammer": lambda attempt: install.on_boot(attempt, NEW_BOOT, SLEDGEHAMMER),
    "boot-installer": lambda attempt: install.on_boot(attempt, NEW_BOOT, install.installer_bootenv("debian-12")),
    "old-boot-local": lambda attempt: install.on_boot(attempt, OLD_BOOT, LOCAL),
    "installer-boot-local": lambda attempt: install.on_boot(attempt, INSTALLER_BOOT, LOCAL),
    "probe-good": lambda attempt: install.on_probed(attempt, ok=True),
    "probe-bad": lambda attempt: install.on_probed(attempt, ok=False, error="another boot"),
    "expired": lambda attempt: install.on_expired(attempt, "Too late"),
}

# Columns: the stage before. "-": refused, nothing changes. "=": taken, and the stage stays.
TABLE = """
                      waiting     publishing  rebooting   installing  booting  probing  done  failed
begin                 publishing  -           -           -           -        -        -     -
published             -           rebooting   -           -           -        -        -     -
fetched               -           -           installing  failed      failed   failed   -     -
fetched-elsewhere     -           -           installing  failed      failed   failed   -     -
progress              -           -           -           =           -        -        -     -
progress-elsewhere    -           -           -           -           -        -        -     -
success               -           -           -           booting     -        -        -     -
success-elsewhere     -           -           -           -           -        -        -     -
failure               -           -           -           failed      -        -        -     -
failure-elsewhere     -           -           -           -           -        -        -     -
boot-local            -           -           -           -           probing  -        -     -
boot-sledgehammer     -           -           -           failed      -        -        -     -
boot-installer        -           -           -           =           -        -        -     -
old-boot-local        -           -           -           -           -        -        -     -
installer-boot-local  -           -           -           -           -        -        -     -
probe-good            -           -           -           -           -        done     -     -
probe-bad             -           -           -           -           -        failed   -     -
expired               failed      failed      failed      failed      failed   failed   -     -
"""

PUBLISHES = (Act.PUBLISH_INSTALLER, Act.PUBLISH_SLEDGEHAMMER, Act.PUBLISH_LOCAL)
"""The acts that decide what the machine boots next; no others do."""


def at(stage: Stage) -> Attempt:
    """Return an attempt as it is at this stage."""
    fetched = stage not in (Stage.WAITING, Stage.PUBLISHING, Stage.REBOOTING)
    return Attempt(
        stage,
        boot_id=OLD_BOOT,
        installer_boot_id=INSTALLER_BOOT if fetched else None,
        source=HERE if fetched else None,
        error="broken" if stage is Stage.FAILED else "",
    )


def cases() -> list[tuple[str, Stage, str]]:
    header, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [(name, Stage(stage), cell) for name, *cells in rows for stage, cell in zip(header, cells, strict=True)]


@pytest.mark.parametrize(("message", "stage", "cell"), cases(), ids=str)
def test_every_message_at_every_stage(message: str, stage: Stage, cell: str) -> None:
    before = at(stage)
    step = MESSAGES[message](before)
    if cell == "-":
        assert step == Step(before, refused=step.refused)
        assert step.refused
    else:
        assert not step.refused
        assert step.attempt.stage == (stage if cell == "=" else Stage(cell))


def test_the_table_here_has_every_message_and_stage() -> None:
    assert {(message, stage) for message, stage, _ in cases()} == {(m, s) for m in MESSAGES for s in Stage}


@pytest.mark.parametrize("stage", Stage, ids=str)
@pytest.mark.parametrize("message", MESSAGES)
def test_only_the_beginning_ever_makes_the_next_boot_the_installer(message: str, stage: Stage) -> None:
    acts = MESSAGES[message](at(stage)).acts
    assert (Act.PUBLISH_INSTALLER in acts) == (message == "begin" and stage is Stage.WAITING)


@pytest.mark.parametrize(
    ("message", "stage"), [(m, s) for m, s, cell in cases() if cell == "failed"], ids=lambda value: str(value)
)
def test_after_any_failure_the_next_boot_is_not_the_installer(message: str, stage: Stage) -> None:
    """Send the messages up to `stage`, follow what is published on it, then fail."""
    bootenv = SLEDGEHAMMER
    messages = ["begin", "published", "fetched", "success", "boot-local"]
    attempt = Attempt(Stage.WAITING, boot_id=OLD_BOOT)
    for word in messages:
        if attempt.stage is stage:
            break
        step = MESSAGES[word](attempt)
        attempt, bootenv = step.attempt, _published(step, bootenv)
    assert attempt.stage is stage
    failed = MESSAGES[message](attempt)
    assert failed.attempt.stage is Stage.FAILED
    assert Act.FAIL in failed.acts
    assert not _published(failed, bootenv).endswith("-install")


def _published(step: Step, before: str) -> str:
    names = {
        Act.PUBLISH_INSTALLER: install.installer_bootenv("debian-12"),
        Act.PUBLISH_SLEDGEHAMMER: SLEDGEHAMMER,
        Act.PUBLISH_LOCAL: LOCAL,
    }
    return next((names[act] for act in step.acts if act in PUBLISHES), before)


def test_the_way_to_success_asks_for_each_thing_once_and_in_order() -> None:
    attempt = Attempt(Stage.WAITING, boot_id=OLD_BOOT)
    acts: list[Act] = []
    for word in ("begin", "published", "fetched", "progress", "success", "boot-local", "probe-good"):
        step = MESSAGES[word](attempt)
        attempt = step.attempt
        acts += step.acts
    assert attempt.stage is Stage.DONE
    assert acts == [
        Act.PUBLISH_INSTALLER,
        Act.REBOOT,
        Act.PUBLISH_SLEDGEHAMMER,
        Act.PUBLISH_LOCAL,
        Act.PROBE,
        Act.SUCCEED,
    ]


@pytest.mark.parametrize("source", [HERE, ELSEWHERE])
def test_a_second_fetch_alarms_and_names_both_addresses(source: str) -> None:
    step = install.on_secret_fetched(at(Stage.INSTALLING), source)
    assert Act.ALARM in step.acts
    assert HERE in step.attempt.error
    assert source in step.attempt.error


def test_the_secret_belongs_to_the_address_it_was_fetched_from() -> None:
    assert install.on_secret_fetched(at(Stage.REBOOTING), ELSEWHERE).attempt.source == ELSEWHERE


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in ENDED], ids=str)
def test_what_expires_says_why_and_how_far_it_had_come(stage: Stage) -> None:
    error = install.on_expired(at(stage), "Too late").attempt.error
    assert "Too late" in error
    assert stage.value in error


def test_a_failed_install_says_what_the_installer_said() -> None:
    assert "no disk" in MESSAGES["failure"](at(Stage.INSTALLING)).attempt.error


def test_an_installer_that_does_not_say_why_it_failed_still_leaves_a_reason() -> None:
    assert install.on_installer_end(at(Stage.INSTALLING), HERE, ok=False).attempt.error


@pytest.mark.parametrize("stage", Stage, ids=str)
@pytest.mark.parametrize("ok", [True, False])
def test_an_end_is_taken_already_only_where_just_this_one_was(stage: Stage, ok: bool) -> None:
    taken = {True: Stage.BOOTING, False: Stage.FAILED}
    before = at(Stage.INSTALLING)
    told = MESSAGES["success" if ok else "failure"](before).attempt
    assert told.stage is taken[ok]
    assert install.is_end_taken(told, HERE, ok=ok, error="no disk")
    assert not install.is_end_taken(told, ELSEWHERE, ok=ok, error="no disk")
    assert not install.is_end_taken(told, HERE, ok=not ok, error="no disk")
    assert ok or not install.is_end_taken(told, HERE, ok=ok, error="another disk")
    assert install.is_end_taken(at(stage), HERE, ok=ok, error="no disk") == (ok and stage is Stage.BOOTING)


def test_a_boot_while_installing_is_remembered_and_later_of_the_past() -> None:
    noted = MESSAGES["boot-installer"](at(Stage.INSTALLING)).attempt
    late = install.on_boot(replace(noted, stage=Stage.BOOTING), NEW_BOOT, LOCAL)
    assert late.refused
    assert late.attempt.stage is Stage.BOOTING
