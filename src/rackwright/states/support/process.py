"""Runs programs for state modules: never a shell, never a prompt; errors have the program's name and its output.

`cmd.run` runs people's commands in another way; this module is for the tools that state modules use.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Sequence, Tuple

from ..module import StateError

LAST_LINES = 6
"""How many lines of a program's output an error has."""
TOOL_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Return the environment for a program: a fixed language (output is parsed), no prompts, admin tools on PATH."""
    variables = dict(os.environ)
    variables.update(LC_ALL="C.UTF-8", LANGUAGE="C", DEBIAN_FRONTEND="noninteractive", GIT_TERMINAL_PROMPT="0")
    path = variables.get("PATH", "")
    missing = [folder for folder in TOOL_PATHS.split(":") if folder not in path.split(":")]
    variables["PATH"] = ":".join(([path] if path else []) + missing)
    variables.update(extra or {})
    return variables


def which(program: str) -> Optional[str]:
    import shutil

    return shutil.which(program, path=environment()["PATH"])


def run(
    command: Sequence[str],
    what: str,
    *,
    stdin: str = "",
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    user: str = "",
    good: Tuple[int, ...] = (0,),
    timeout: Optional[float] = None,
) -> str:
    """Run `command` and return its standard output; `what` says in a few words what it is for, for the error."""
    status, stdout, stderr = attempt(command, stdin=stdin, env=env, cwd=cwd, user=user, timeout=timeout)
    if status not in good:
        raise StateError(f"{what}: {command[0]} ended with status {status}: {last_words(stderr or stdout)}")
    return stdout


def attempt(
    command: Sequence[str],
    *,
    stdin: str = "",
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    user: str = "",
    timeout: Optional[float] = None,
) -> Tuple[int, str, str]:
    """Run `command` and return status, output and errors; only a program that cannot be run at all is a StateError."""
    identity, home = _identity(user)
    try:
        process = subprocess.run(
            list(command),
            input=stdin.encode(),
            capture_output=True,
            env=environment({**home, **(env or {})}),
            cwd=cwd,
            timeout=timeout,
            **identity,
        )
    except FileNotFoundError as error:
        if cwd is not None and not os.path.isdir(cwd):
            raise StateError(f"cannot run {command[0]} in {cwd}: there is no such folder") from error
        raise StateError(f"{command[0]} is not on this machine; install it first") from error
    except PermissionError as error:
        raise StateError(f"may not run {command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise StateError(f"{' '.join(command)} did not end within {timeout:g} s and was killed") from error
    return process.returncode, process.stdout.decode("utf-8", "replace"), process.stderr.decode("utf-8", "replace")


def _identity(user: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return the arguments of subprocess to become `user` with all its groups, and the environment variables for it."""
    if not user:
        return {}, {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise StateError(
            f"there is no user {user!r} on this machine; add a user.present state and require it"
        ) from None
    names = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
    if entry.pw_uid == os.geteuid():
        return {}, names
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}, names


def follow(command: Sequence[str], what: str, log: Callable[[str], None], env: Optional[Dict[str, str]] = None) -> None:
    """Run a long program and give each line to `log` as it comes; its last lines are in the error if it fails."""
    last_lines: Deque[str] = deque(maxlen=10 * LAST_LINES)  # some may be empty
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(env),
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise StateError(f"{what}: {command[0]} is not on this machine; install it first") from error
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            last_lines.append(line.rstrip())
            log(last_lines[-1])
    if process.returncode != 0:
        raise StateError(
            f"{what}: {command[0]} ended with status {process.returncode}: {last_words(chr(10).join(last_lines))}"
        )


def last_words(text: str, lines: int = LAST_LINES) -> str:
    """Return the last lines of a program's output, which have the reason of a failure."""
    nonempty = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(nonempty[-lines:]) or "it said nothing"
