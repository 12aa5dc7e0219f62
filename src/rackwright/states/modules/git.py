"""Git clones: at the latest commit of a branch or tag, merely cloned, or at one commit and on no branch.

For people's working copies. Where states themselves come from is `states/reading/sources.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Dict, List, Optional

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..support.files import remove_all
from ..support.plan import Plan, carry_out
from ..support.process import attempt, run

COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Clone:
    """A clone on this machine, and how to run git in it."""

    target: str
    user: str
    identity: str
    remote: str

    def git(self, *arguments: str, inside: bool = True) -> str:
        command = ["git", *(["-C", self.target] if inside else []), *arguments]
        what = f"git {arguments[0]} for {self.target}"
        return run(command, what, user=self.user, env=self._environment(), cwd="/").strip()

    def try_git(self, *arguments: str) -> Optional[str]:
        """Run git and return its standard output; None if it failed."""
        command = ["git", "-C", self.target, *arguments]
        code, stdout, stderr = attempt(command, user=self.user, env=self._environment(), cwd="/")
        if "dubious ownership" in stderr:
            # This check of git stays on: the settings of a user's clone would run programs as us.
            raise StateError(f"{self.target} belongs to another user; name that user with user:")
        return stdout.strip() if code == 0 else None

    def _environment(self) -> Dict[str, str]:
        options = ["-o", "BatchMode=yes"]  # a prompt must not hang the run
        options += ["-i", self.identity, "-o", "IdentitiesOnly=yes"] if self.identity else []
        return {"GIT_SSH_COMMAND": shlex.join(["ssh", *options])}

    def exists(self) -> bool:
        return os.path.isdir(os.path.join(self.target, ".git")) or os.path.isfile(os.path.join(self.target, "HEAD"))

    def remote_commit(self, url: str, reference: str) -> Optional[str]:
        """Return the remote's commit of a name: a branch before a tag; of an annotated tag its commit, not the tag."""
        names = ["HEAD"] if reference == "HEAD" else [f"refs/heads/{reference}", f"refs/tags/{reference}"]
        text = self.git("ls-remote", "--", url, *names, *(f"{name}^{{}}" for name in names[1:]), inside=False)
        commits = {name: commit for commit, _, name in (line.partition("\t") for line in text.splitlines())}
        for name in (names[0], f"{names[-1]}^{{}}", names[-1]):
            if name in commits:
                return commits[name]
        return None


def clone_of(arguments: Arguments) -> Clone:
    return Clone(
        os.path.normpath(str(arguments["target"])),
        str(arguments.get("user") or ""),
        str(arguments.get("identity") or ""),
        str(arguments.get("remote") or "origin"),
    )


def check_latest(arguments: Arguments, context: Context) -> Check:
    clone, url = clone_of(arguments), str(arguments["name"])
    reference = str(arguments["rev"])
    commit = reference if COMMIT.fullmatch(reference) else clone.remote_commit(url, reference)
    if commit is None:
        raise StateError(f"{url} has no branch or tag {reference!r}")
    plan = Plan()
    if not clone.exists():
        _plan_clone(plan, clone, url, arguments)
        plan.changes.update(new=f"{url} => {clone.target}", revision={"old": None, "new": commit})
        plan.step(partial(_move_to_commit, clone, reference, commit, arguments, fresh=True))
    else:
        _plan_update(plan, clone, url, reference, commit, arguments)
    plan.outputs["revision"] = commit
    return plan.check(
        f"Repository {clone.target} is up to date at {commit[:12]}", f"Repository {clone.target} would be updated"
    )


def _plan_clone(plan: Plan, clone: Clone, url: str, arguments: Arguments) -> None:
    if (os.path.isdir(clone.target) and os.listdir(clone.target)) or os.path.isfile(clone.target):
        if not arguments.get("force_clone"):
            raise StateError(f"{clone.target} exists and is no clone; set force_clone: true to replace it")
        plan.step(partial(remove_all, clone.target))
    flags = ["--origin", clone.remote]
    flags += ["--depth", str(arguments["depth"]), "--no-single-branch"] if arguments.get("depth") else []
    flags += ["--recurse-submodules"] if arguments.get("submodules") else []
    flags += ["--branch", str(arguments["branch"])] if arguments.get("branch") and "rev" not in arguments else []
    plan.step(partial(clone.git, "clone", "--quiet", *flags, "--", url, clone.target, inside=False))


def _plan_update(plan: Plan, clone: Clone, url: str, reference: str, commit: str, arguments: Arguments) -> None:
    current = clone.try_git("rev-parse", "HEAD") or ""
    if clone.try_git("remote", "get-url", clone.remote) != url:
        old = clone.try_git("remote", "get-url", clone.remote)
        verb = "add" if old is None else "set-url"
        plan.step(partial(clone.git, "remote", verb, clone.remote, url), remote={"old": old, "new": url})
    if current == commit or (COMMIT.fullmatch(reference) and current.startswith(reference)):
        return
    dirty = bool(clone.try_git("status", "--porcelain", "--untracked-files=no"))
    if dirty and not arguments["force_reset"]:
        raise StateError(f"{clone.target} has changes that are not committed; set force_reset: true to throw them away")
    plan.step(
        partial(_move_to_commit, clone, reference, commit, arguments), revision={"old": current or None, "new": commit}
    )


def _move_to_commit(clone: Clone, reference: str, commit: str, arguments: Arguments, fresh: bool = False) -> None:
    """Move the working copy to a commit: forward only, unless force_reset allows more."""
    if not fresh:
        clone.git("fetch", "--quiet", "--tags", "--force", clone.remote)
    current = clone.try_git("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = str(arguments.get("branch") or "") or (current if reference == "HEAD" else _local_branch(clone, reference))
    if branch is None:
        clone.git("checkout", "--quiet", "--detach", commit)
    elif branch != current:
        if clone.try_git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") is None:
            clone.git("checkout", "--quiet", "-b", branch, commit)
        else:
            clone.git("checkout", "--quiet", branch, "--")
    if (
        clone.try_git("rev-parse", "HEAD") != clone.try_git("rev-parse", f"{commit}^{{commit}}")
        or arguments["force_reset"]
    ):
        if arguments["force_reset"]:
            clone.git("reset", "--quiet", "--hard", commit)
        elif clone.try_git("merge-base", "--is-ancestor", "HEAD", commit) is None:
            raise StateError(
                f"{clone.target} has commits that {commit[:12]} has not; set force_reset: true to drop them"
            )
        else:
            clone.git("merge", "--quiet", "--ff-only", commit)
    if arguments.get("submodules"):
        clone.git("submodule", "update", "--quiet", "--init", "--recursive")


def _local_branch(clone: Clone, reference: str) -> Optional[str]:
    """Return the name of the local branch to use for a remote branch; None for a tag or a commit."""
    return (
        reference
        if clone.try_git("rev-parse", "--verify", "--quiet", f"refs/remotes/{clone.remote}/{reference}")
        else None
    )


def check_cloned(arguments: Arguments, context: Context) -> Check:
    clone, url, branch = clone_of(arguments), str(arguments["name"]), arguments.get("branch")
    plan = Plan()
    if not clone.exists():
        _plan_clone(plan, clone, url, arguments)
        plan.changes["new"] = f"{url} => {clone.target}"
    elif branch and clone.try_git("symbolic-ref", "--quiet", "--short", "HEAD") != str(branch):
        old = clone.try_git("symbolic-ref", "--quiet", "--short", "HEAD")
        plan.step(partial(_switch_branch, clone, str(branch)), branch={"old": old, "new": str(branch)})
    return plan.check(f"Repository already exists at {clone.target}", f"Repository {clone.target} would be updated")


def _switch_branch(clone: Clone, branch: str) -> None:
    clone.git("fetch", "--quiet", clone.remote)
    clone.git("checkout", "--quiet", branch, "--")


def check_detached(arguments: Arguments, context: Context) -> Check:
    clone, url, reference = clone_of(arguments), str(arguments["name"]), str(arguments["rev"])
    plan = Plan()
    if not clone.exists():
        _plan_clone(plan, clone, url, {key: value for key, value in arguments.items() if key != "branch"})
        plan.changes["new"] = f"{url} => {clone.target}"
        plan.step(partial(_detach_at, clone, reference, fetch=False), revision={"old": None, "new": reference})
    else:
        current = clone.try_git("rev-parse", "HEAD")
        commit = clone.try_git("rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
        attached = clone.try_git("symbolic-ref", "--quiet", "HEAD") is not None
        if attached or commit is None or current != commit:
            dirty = bool(clone.try_git("status", "--porcelain", "--untracked-files=no"))
            if dirty and not arguments["force_checkout"]:
                raise StateError(
                    f"{clone.target} has changes that are not committed; set force_checkout: true to drop them"
                )
            force = bool(arguments["force_checkout"])
            step = partial(_detach_at, clone, reference, fetch=commit is None, force=force)
            plan.step(step, revision={"old": current, "new": commit or reference})
    return plan.check(f"HEAD of {clone.target} is detached at {reference}", f"HEAD of {clone.target} would be moved")


def _detach_at(clone: Clone, reference: str, fetch: bool, force: bool = False) -> None:
    if fetch:
        clone.git("fetch", "--quiet", "--tags", "--force", clone.remote)
    names = (f"refs/remotes/{clone.remote}/{reference}", f"refs/tags/{reference}", reference)
    candidates = (clone.try_git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") for name in names)
    commit = next((commit for commit in candidates if commit), None)
    if commit is None:
        raise StateError(f"{clone.target} has no {reference!r} to check out, not even after a fetch")
    clone.git("checkout", "--quiet", *(["--force"] if force else []), "--detach", commit)


def validate(arguments: Arguments) -> List[str]:
    errors = []
    if not str(arguments["name"]) or str(arguments["name"]).startswith("-"):
        errors.append(f"name: {arguments['name']!r} is no address of a repository")
    if re.match(r"\w+://[^/@:]*:[^/@]*@", str(arguments["name"])):
        errors.append("name: has a password in it, which would show in logs; use identity or git's credential helper")
    if not str(arguments["target"]).startswith("/"):
        errors.append(f"target: {arguments['target']!r} is no absolute path")
    for key in ("rev", "branch", "remote"):
        value = arguments.get(key)
        if value is not None and (str(value).startswith("-") or not str(value) or set(str(value)) & set(" ~^:?*[\\")):
            errors.append(f"{key}: {value!r} is no name git would take")
    if arguments.get("depth") is not None and arguments["depth"] < 1:
        errors.append("depth: at least 1")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("file", os.path.normpath(str(arguments["target"])))]


URL = Argument("name", help="address of the repository", required=True)
TARGET = Argument("target", help="absolute path of the clone", required=True)
COMMON = (
    Argument("remote", help="name of the remote", default="origin"),
    Argument("user", help="run git as this user"),
    Argument("identity", help="private key for ssh"),
    Argument("force_clone", "bool", help="replace what is at target if it is no clone", default=False),
    Argument("depth", "int", help="clone only so many commits"),
    Argument("submodules", "bool", help="with submodules", default=False),
)

FUNCTIONS = (
    StateFunction(
        "latest",
        "A clone at what the remote's branch or tag is now. It only goes forward; `force_reset` allows more.",
        (
            URL,
            TARGET,
            Argument("rev", help="branch, tag or commit", default="HEAD"),
            Argument("branch", help="local branch to use; named as the remote one if not given"),
            Argument("force_reset", "bool", help="drop local commits and changes that are in the way", default=False),
            *COMMON,
        ),
        check_latest,
        carry_out,
        validate=validate,
        resources=resources,
    ),
    StateFunction(
        "cloned",
        "A clone is there, on `branch` if one is named. It is not updated.",
        (URL, TARGET, Argument("branch", help="branch to be on"), *COMMON),
        check_cloned,
        carry_out,
        validate=validate,
        resources=resources,
    ),
    StateFunction(
        "detached",
        "A clone with HEAD at one commit and on no branch.",
        (
            URL,
            TARGET,
            Argument("rev", help="commit, tag or branch", required=True),
            Argument("force_checkout", "bool", help="drop changes that are in the way", default=False),
            *COMMON,
        ),
        check_detached,
        carry_out,
        validate=validate,
        resources=resources,
    ),
)
