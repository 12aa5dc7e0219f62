"""Text from strangers cannot send control characters to the terminal of the person who reads it."""

import contextlib
import io
import json
import logging

import pytest
from rich.table import Table
from rich.text import Text

from rackwright.cli.output.server_log import HarmlessFormatter
from rackwright.cli.output.terminal import open_console, say, say_output, visible

ATTACKS = {
    "title": "\x1b]0;owned\x07",
    "up and erase": "\x1b[1A\x1b[2Kall is well",
    "eight bits": "\x9b2Jgone",
    "overwritten": "bad\rgood",
    "erased": "bad\x08\x08\x08ok",
    "delete": "\x7f",
    "other way round": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "NUL": "\x00",
}
FORBIDDEN = {character for text in ATTACKS.values() for character in text if not character.isprintable()}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal() -> contextlib.redirect_stdout[Terminal]:
    """Replace standard output by a terminal. No fixture: pytest puts its own output between a fixture and the test."""
    return contextlib.redirect_stdout(Terminal())


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_control_character_gets_through(monkeypatch: pytest.MonkeyPatch, attack: str) -> None:
    monkeypatch.setenv("TERM", "dumb")  # so that rich sends none of its own
    table = Table("what", title=Text(attack))
    table.add_row(Text(attack))
    with terminal() as shown:
        say(attack)
        say_output(attack)
        open_console().print(table)
        open_console(soft_wrap=True).print(Text(attack), attack)
    assert "what" in shown.getvalue()
    assert not FORBIDDEN & set(shown.getvalue())


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_json_stays_the_same(attack: str) -> None:
    assert json.loads(visible(json.dumps({attack: attack}, ensure_ascii=False))) == {attack: attack}


def test_what_is_no_attack_is_shown_as_it_is() -> None:
    text = "Zoë → 東京\tümläut\n🙂"
    assert visible(text) == text


def test_lines_that_overwrite_each_other_are_shown_below_each_other() -> None:
    with terminal() as shown:
        say_output("10 %\r20 %\r\ndone\n")
    assert shown.getvalue() == "10 %\n20 %\ndone\n"


def test_the_output_of_a_program_reaches_another_program_unchanged() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as pipe:
        say_output("\x1b[32mgreen\x1b[0m\r")
    assert pipe.getvalue() == "\x1b[32mgreen\x1b[0m\r"


def test_colours_of_our_own_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with terminal() as shown:
        open_console().print("[green]well[/]")
    assert shown.getvalue() == "\x1b[32mwell\x1b[0m\n"


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_log_shows_what_was_said_and_has_no_line_that_was_made_up(attack: str) -> None:
    log, written = logging.getLogger("a log of the test"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(HarmlessFormatter())
    log.addHandler(handler)
    log.propagate = False
    try:
        raise ValueError(attack)
    except ValueError:
        log.exception("the machine said: %s", f"{attack}\nadmin logged in")
    finally:
        log.removeHandler(handler)
    first, *trace = written.getvalue().splitlines()
    assert first == f"the machine said: {visible(attack)}\\nadmin logged in"
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == f"ValueError: {visible(attack)}"
    assert FORBIDDEN.isdisjoint(written.getvalue())
