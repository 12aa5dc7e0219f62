"""`cron` with the real crontab program, on crontabs of system users that have none."""

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="other users' crontabs are root's to write")


def crontab(user: str) -> str:
    return subprocess.run(["crontab", "-u", user, "-l"], capture_output=True, text=True).stdout


@pytest.fixture
def owner() -> Iterator[Callable[[str], str]]:
    """Borrow a system user without crontab. Each test takes another one: tests run side by side."""
    taken: list[str] = []

    def take(user: str) -> str:
        assert crontab(user) == "", f"{user} has a crontab of its own"
        taken.append(user)
        return user

    yield take
    for user in taken:
        subprocess.run(["crontab", "-u", user, "-r"], capture_output=True)


def test_an_entry_is_added_changed_in_place_and_removed(owner: Callable[[str], str]) -> None:
    user, run = owner("games"), Run()
    subprocess.run(["crontab", "-u", user, "-"], input="# mine\n0 5 * * * /bin/own\n", text=True, check=True)
    entry = {"name": "/bin/backup", "user": user, "identifier": "backup"}
    changes = run.apply("cron.present", minute=5, hour="*/2", comment="every two hours", **entry).changes
    assert "+5 */2 * * * /bin/backup\n" in changes[user]
    run.apply("cron.present", **{**entry, "name": "/bin/backup --all"}, special="@daily")
    assert crontab(user) == (
        "# mine\n0 5 * * * /bin/own\n# RACKWRIGHT_CRON_IDENTIFIER:backup\n@daily /bin/backup --all\n"
    )
    run.apply("cron.absent", **entry)
    assert crontab(user) == "# mine\n0 5 * * * /bin/own\n"


def test_an_entry_made_by_hand_or_by_salt_is_taken_over(owner: Callable[[str], str]) -> None:
    user, run = owner("news"), Run()
    table = "1 2 3 4 5 /bin/by-hand\n# note SALT_CRON_IDENTIFIER:old\n@weekly /bin/salt\n"
    subprocess.run(["crontab", "-u", user, "-"], input=table, text=True, check=True)
    run.apply("cron.present", name="/bin/by-hand", user=user, minute=9)
    run.apply("cron.present", name="/bin/salt", user=user, identifier="old", special="@weekly")
    assert [line for line in crontab(user).splitlines() if not line.startswith("#")] == [
        "9 * * * * /bin/by-hand",
        "@weekly /bin/salt",
    ]


def test_an_entry_can_be_kept_but_switched_off(owner: Callable[[str], str]) -> None:
    user, run = owner("uucp"), Run()
    run.apply("cron.present", name="/bin/x", user=user, commented=True)
    assert crontab(user).endswith("#DISABLED#* * * * * /bin/x\n")
    run.apply("cron.present", name="/bin/x", user=user)
    assert crontab(user).endswith("\n* * * * * /bin/x\n")


def test_a_time_cron_does_not_take_leaves_the_old_table(owner: Callable[[str], str]) -> None:
    user, run = owner("lp"), Run()
    run.apply("cron.present", name="/bin/x", user=user)
    with pytest.raises(StateError, match="cron does not take the crontab of lp"):
        run.apply("cron.present", name="/bin/y", user=user, hour=99)
    assert "/bin/y" not in crontab(user)


def test_a_dry_run_changes_nothing(owner: Callable[[str], str]) -> None:
    user = owner("irc")
    assert Run().check("cron.present", name="/bin/x", user=user).changes
    assert crontab(user) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a\nb"}, "one line"),
        ({"name": "x", "minute": "5 4"}, "nothing cron would take"),
        ({"name": "x", "minute": 5, "special": "@daily"}, "exclude each other"),
        ({"name": "x", "special": "@often"}, "must be one of"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        Run().apply("cron.present", **arguments)
