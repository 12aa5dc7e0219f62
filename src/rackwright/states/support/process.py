"""Running programs for state modules: never a shell, never a prompt, errors that say what was run and what it said.

`cmd.run` has its own way of running people's commands; this is for the tools that modules are built on.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Sequence, Tuple

from ..module import StateError

LAST_LINES = 6
"""Of what a program said, in an error."""
TOOL_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The caller's environment with a fixed language (output is parsed), no prompts and the admin tools on PATH."""
    found = dict(os.environ)
    found.update(LC_ALL="C.UTF-8", LANGUAGE="C", DEBIAN_FRONTEND="noninteractive", GIT_TERMINAL_PROMPT="0")
    path = found.get("PATH", "")
    missing = [folder for folder in TOOL_PATHS.split(":") if folder not in path.split(":")]
    found["PATH"] = ":".join(([path] if path else []) + missing)
    found.update(extra or {})
    return found


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
    """Run `command` and give its standard output; `what` says in a few words what it was for, for the error."""
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
    """Run `command` and give status, output and errors; only a program that cannot be run at all is a StateError."""
    identity, home = _identity(user)
    try:
        done = subprocess.run(
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
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _identity(user: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """What to give to subprocess to become `user` with all its groups, and the environment that goes with it."""
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
    """Run something long, giving each line to `log` as it comes; its last lines are in the error if it fails."""
    said: Deque[str] = deque(maxlen=10 * LAST_LINES)  # some may be empty
    try:
        running = subprocess.Popen(
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
    with running:
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line.rstrip())
            log(said[-1])
    if running.returncode != 0:
        raise StateError(
            f"{what}: {command[0]} ended with status {running.returncode}: {last_words(chr(10).join(said))}"
        )


def last_words(text: str, lines: int = LAST_LINES) -> str:
    """The end of what a program said, which is where the reason is."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(said[-lines:]) or "it said nothing"
