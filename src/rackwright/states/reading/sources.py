"""Sources of state files: git repositories, with a branch or tag for each environment, or a plain folder.

A repository is fetched into a mirror, its commit is chosen once and, if keys are named, must be signed by one of them;
then its files are written to a folder of their own that does not change during the run. The files of several
repositories are put into one folder; of two files with the same path, that of the repository named first counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union


def default_cache() -> Path:
    """Return the folder that keeps repositories between runs: in the system's cache for root, else in the user's."""
    if os.geteuid() == 0:
        return Path("/var/cache/rackwright/sources")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "rackwright" / "sources"


KEPT_TREES = 5
REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]*")
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
TIMEOUT = 600.0


class SourceRefused(Exception):
    """The states cannot be used: they cannot be fetched, or are not signed as they must be. Nothing was run."""


@dataclass(frozen=True)
class Folder:
    """A folder that is used as it is, for trying out: nothing is fetched and nothing is pinned."""

    path: Path


@dataclass(frozen=True)
class Repository:
    """A git repository with states."""

    url: str
    environments: Mapping[str, str] = field(default_factory=dict)
    """environment -> branch, tag or full commit; an environment that is not here is its own branch or tag"""
    signers: Optional[Path] = None
    """OpenSSH allowed-signers file; with it, only commits signed by one of its keys are used"""
    subfolder: str = ""
    """the states are below this folder of the repository"""


@dataclass(frozen=True)
class Pin:
    """The commit that a repository is pinned to, and its signer."""

    url: str
    reference: str
    commit: str
    signer: str = ""


@dataclass(frozen=True)
class PinnedTree:
    """A folder of state files that does not change while it is in use, and the commits it was made of."""

    path: Path
    pins: Tuple[Pin, ...] = ()


@contextmanager
def pin_states(
    sources: Union[Folder, Sequence[Repository]], environment: str, cache: Optional[Path] = None, fetch: bool = True
) -> Iterator[PinnedTree]:
    """Provide the state files of an environment for one run. `fetch=False` uses what was fetched before."""
    if isinstance(sources, Folder):
        if not sources.path.is_dir():
            raise SourceRefused(f"there is no folder {sources.path}")
        yield PinnedTree(sources.path)
        return
    if not sources:
        raise SourceRefused("no source of states is named; give a folder or a repository")
    cache = cache or default_cache()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    mirrors = [Mirror(repository, cache) for repository in sources]
    pins = tuple(mirror.pin(environment, fetch) for mirror in mirrors)
    tree = (
        cache
        / "trees"
        / _digest(*(f"{mirror.repository.subfolder}\n{pin.commit}" for mirror, pin in zip(mirrors, pins)))
    )
    tree.parent.mkdir(exist_ok=True)
    # A shared lock while in use: the clean-up of another run removes only trees that no run holds.
    with Path(f"{tree}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not tree.is_dir():
            _build_tree(tree, mirrors, pins)
        os.utime(tree)
        _remove_old_trees(tree.parent)
        yield PinnedTree(tree, pins)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class Mirror:
    """A bare copy of one repository."""

    def __init__(self, repository: Repository, cache: Path) -> None:
        if not repository.url or repository.url.startswith("-"):
            raise SourceRefused(f"{repository.url!r} is no address of a repository")
        if re.match(r"\w+://[^/@:]*:[^/@]*@", repository.url):
            scheme, _, location = repository.url.partition("//")
            address = f"{scheme}//{location.rpartition('@')[2]}"
            raise SourceRefused(f"the address of {address} has a password in it; use a key or git's credential helper")
        if Path(repository.subfolder).is_absolute() or ".." in Path(repository.subfolder).parts:
            raise SourceRefused(f"{repository.url}: the subfolder {repository.subfolder!r} leads out of the repository")
        self.repository = repository
        self.path = cache / f"{_digest(repository.url)}.git"

    def pin(self, environment: str, fetch: bool) -> Pin:
        """Choose the commit of an environment; the run uses this commit to its end."""
        reference = self.repository.environments.get(environment, environment)
        if not REFERENCE.fullmatch(reference) or ".." in reference:
            raise SourceRefused(f"{self.repository.url}: {reference!r} is no name of a branch or tag")
        with self._locked():
            if fetch:
                self._fetch()
            commit = self._resolve(reference, environment)
        return Pin(self.repository.url, reference, commit, self._find_signer(commit) if self.repository.signers else "")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with Path(f"{self.path}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fetch(self) -> None:
        if not (self.path / "HEAD").exists():
            # No template: a mirror has no use for hooks.
            self._git(["init", "--quiet", "--bare", "--template=", str(self.path)], inside=False)
        refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        self._git(["fetch", "--quiet", "--prune", "--no-write-fetch-head", "--", self.repository.url, *refs])

    def _resolve(self, reference: str, environment: str) -> str:
        if not (self.path / "HEAD").exists():
            raise SourceRefused(f"{self.repository.url} was never fetched")
        candidates = [f"refs/heads/{reference}", f"refs/tags/{reference}"]
        candidates += [reference] if COMMIT.fullmatch(reference) else []
        for candidate in candidates:
            process = self._run_git(["rev-parse", "--quiet", "--verify", "--end-of-options", f"{candidate}^{{commit}}"])
            if process.returncode == 0:
                return process.stdout.strip()
        known = self._git(["for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags"]).split()
        contents = f"it has {', '.join(known[:10])}" if known else "it is empty"
        raise SourceRefused(
            f"{self.repository.url} has no branch or tag {reference!r} for the environment {environment!r}; {contents}"
        )

    def _find_signer(self, commit: str) -> str:
        signers = self.repository.signers
        if signers is None or not signers.is_file():
            raise SourceRefused(f"{self.repository.url}: there is no file {signers} with the keys to trust")
        settings = [
            "gpg.format=ssh",
            f"gpg.ssh.allowedSignersFile={signers}",
            # A commit names the kind of its signature itself; only OpenSSH keys of our file are to count.
            "gpg.openpgp.program=/bin/false",
            "gpg.x509.program=/bin/false",
        ]
        process = self._run_git(["verify-commit", "--raw", commit], settings)
        signature = re.search(r'Good "git" signature for (\S+) with', process.stderr + process.stdout)
        if process.returncode != 0 or signature is None:
            output = " ".join((process.stderr or process.stdout).split()) or "it is not signed"
            raise SourceRefused(
                f"{self.repository.url}: commit {commit[:12]} is not signed by a key that {signers} trusts ({output}); "
                "sign it (git commit -S) or add its key"
            )
        return signature.group(1)

    def write_files(self, commit: str, folder: Path) -> None:
        """Write the files of a commit below `folder`, over files that are there already."""
        subfolder = self.repository.subfolder.strip("/")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".index-") as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), "GIT_WORK_TREE": str(folder)}
            tree = f"{commit}:{subfolder}" if subfolder else commit
            self._git(["read-tree", tree], environment=index)
            self._git(["checkout-index", "--all", "--force", f"--prefix={folder}/"], environment=index)

    def _git(self, arguments: List[str], inside: bool = True, environment: Optional[Dict[str, str]] = None) -> str:
        process = self._run_git(arguments, inside=inside, environment=environment)
        if process.returncode != 0:
            output = (
                "; ".join(line.strip() for line in process.stderr.splitlines() if line.strip()) or "it said nothing"
            )
            raise SourceRefused(f"git {arguments[0]} of {self.repository.url} failed: {output}")
        return process.stdout

    def _run_git(
        self,
        arguments: List[str],
        settings: Sequence[str] = (),
        inside: bool = True,
        environment: Optional[Dict[str, str]] = None,
    ) -> "subprocess.CompletedProcess[str]":
        all_settings = ["core.hooksPath=/dev/null", "protocol.ext.allow=never", *settings]
        command = ["git", *(part for setting in all_settings for part in ("-c", setting))]
        command += [f"--git-dir={self.path}"] if inside else []
        # Settings for another repository (if a git hook runs us, say) must not leak into this one. Git may not prompt.
        git_environment = {
            key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key.startswith("GIT_SSH")
        }
        git_environment.update(GIT_TERMINAL_PROMPT="0", LC_ALL="C.UTF-8", **(environment or {}))
        try:
            return subprocess.run(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=git_environment,
                timeout=TIMEOUT,
            )
        except FileNotFoundError as error:
            raise SourceRefused("git is not on this machine; install it, or use a plain folder of states") from error
        except subprocess.TimeoutExpired as error:
            raise SourceRefused(f"git {arguments[0]} of {self.repository.url} took more than {TIMEOUT:g} s") from error


def _build_tree(tree: Path, mirrors: Sequence[Mirror], pins: Sequence[Pin]) -> None:
    """Write the files of all commits to a new tree.

    They are written to a temporary folder, which is renamed: a tree that exists is complete, even after a kill.
    """
    temporary = Path(tempfile.mkdtemp(dir=tree.parent, prefix=".new-"))
    try:
        for mirror, pin in reversed(list(zip(mirrors, pins))):
            mirror.write_files(pin.commit, temporary)
        try:
            temporary.rename(tree)
        except OSError:
            # Another run was faster; its tree is the same.
            if not tree.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_old_trees(trees: Path) -> None:
    """Remove all but the trees used last; a tree that a run holds stays."""
    newest_first = sorted((path for path in trees.iterdir() if path.is_dir()), key=_last_use, reverse=True)
    for path in newest_first[KEPT_TREES:]:
        with Path(f"{path}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(path, ignore_errors=True)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
