"""The package backend for apt and dpkg."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Dict, List, Sequence, Set

from ..process import follow, run
from .base import Available, Backend, Inventory, Log, Options, Target
from .versions import compare_deb

LOCK_SECONDS = 300
"""How long to wait for another apt (a nightly upgrade) to end."""

FIELDS = "${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\t${Provides}\\n"


class Apt(Backend):
    """Debian and its derivatives. With a root, apt uses lists, cache and database below that folder."""

    name = "apt"

    def inventory(self) -> Inventory:
        root = [f"--root={self.root}"] if self.root else []
        text = run(["dpkg-query", *root, "-W", "-f", FIELDS], "reading the package database")
        native = self._native()
        versions: Dict[str, str] = {}
        provided: Set[str] = set()
        residual: Set[str] = set()
        held: Set[str] = set()
        for line in text.splitlines():
            package, architecture, version, want, status, provides = line.split("\t")
            name = package if architecture in (native, "all") else f"{package}:{architecture}"
            if status == "config-files":
                residual.add(name)
            elif status in ("installed", "triggers-pending", "triggers-awaited"):
                versions[name] = version
                provided.update(re.findall(r"(?:^|, )([^ ,(]+)", provides))
                if want == "hold":
                    held.add(name)
        virtual = frozenset(provided - versions.keys())
        return Inventory(versions, virtual, frozenset(residual), frozenset(held), (f":{native}", ":all"))

    def _native(self) -> str:
        return run(["dpkg", "--print-architecture"], "reading the architecture").strip()

    def available(self, names: Sequence[str]) -> Dict[str, Available]:
        text = run(["apt-cache", *self._root(), "policy", "--", *names], "reading the package lists")
        return parse_policy(text)

    def refresh(self, log: Log, source: str = "") -> None:
        log("refreshing the package lists with apt-get update" + (f", only those of {source}" if source else ""))
        # An unreachable repository is only a warning for apt; a state that needs its lists must fail.
        options = ["-o", "APT::Update::Error-Mode=any"]
        if source:
            # One source file: the lists of the others stay, neither read again nor cleaned away.
            source_settings = (f"Dir::Etc::sourcelist={source}", "Dir::Etc::sourceparts=-", "APT::Get::List-Cleanup=0")
            options += [part for setting in source_settings for part in ("-o", setting)]
        with tempfile.TemporaryDirectory(prefix="rackwright-") as folder:
            if self.root:
                options += self._rooted_sources(Path(folder), source)
            follow(self._command("update", options), "refreshing the package lists", log)

    def _rooted_sources(self, folder: Path, source: str) -> List[str]:
        """Write copies of the sources of a root and return the options that make apt read them.

        Sources name keyrings by their path inside the root, but apt of this machine opens them: in the copies the
        paths are those from outside.
        """
        main = Path(self.root, "etc/apt/sources.list")
        parts = sorted(Path(self.root, "etc/apt/sources.list.d").glob("*"))
        for number, path in enumerate([Path(source)] if source else [main, *parts]):
            if path.suffix in (".list", ".sources") and path.is_file():
                text = re.sub(
                    r"(?i)(signed-by\s*[=:]\s*)(/\S+?)(?=[\s\],])", rf"\g<1>{self.root}\g<2>", path.read_text()
                )
                (folder / f"{number:03}-{path.name}").write_text(text)
        return ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={folder}"]

    def install(self, targets: Sequence[Target], options: Options, log: Log) -> None:
        self._finish_interrupted(log)
        extra = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
        extra += ["-t", options.fromrepo] if options.fromrepo else []
        extra += ["--allow-unauthenticated"] if options.skip_verify else []
        extra += ["--allow-downgrades"] if options.downgrade else []
        extra += ["--allow-change-held-packages"] if options.change_held else []
        if options.install_recommends is not None:
            extra.append("--install-recommends" if options.install_recommends else "--no-install-recommends")
        named = [target.name + (f"={target.version}" if target.version else "") for target in targets]
        follow(self._command("install", [*extra, "--", *named]), f"installing {', '.join(named)}", log)

    def remove(self, names: Sequence[str], purge: bool, log: Log) -> None:
        self._finish_interrupted(log)
        verb = "purge" if purge else "remove"
        follow(self._command(verb, ["--", *names]), f"removing {', '.join(names)}", log)

    def hold(self, names: Sequence[str], held: bool) -> None:
        run(["apt-mark", *self._root(), "hold" if held else "unhold", "--", *names], "holding packages")

    def compare(self, one: str, other: str) -> int:
        return compare_deb(one, other)

    def _finish_interrupted(self, log: Log) -> None:
        """Finish a dpkg run that was killed: it leaves a journal, and apt refuses to work until that is processed."""
        journal = f"{self.root}/var/lib/dpkg/updates"
        if os.path.isdir(journal) and any(name.isdigit() for name in os.listdir(journal)):
            log("finishing an interrupted dpkg run")
            root = [f"--root={self.root}"] if self.root else []
            follow(
                ["dpkg", *root, "--configure", "-a", "--force-confdef", "--force-confold"], "dpkg --configure -a", log
            )

    def _command(self, verb: str, arguments: Sequence[str]) -> List[str]:
        lock_timeout = f"DPkg::Lock::Timeout={LOCK_SECONDS}"
        return ["apt-get", "-q", "-y", "-o", lock_timeout, *self._root(), verb, *arguments]

    def _root(self) -> List[str]:
        if not self.root:
            return []
        settings = (
            f"Dir={self.root}",
            f"Dir::State::status={self.root}/var/lib/dpkg/status",
            f"Dir::Log={self.root}/var/log/apt",
            f"DPkg::Options::=--root={self.root}",
            "APT::Sandbox::User=root",  # the user _apt may not look into a folder that is root's own
        )
        return [part for setting in settings for part in ("-o", setting)]


def parse_policy(text: str) -> Dict[str, Available]:
    """Return the packages that `apt-cache policy NAME ...` printed; those without a candidate are left out."""
    available: Dict[str, Available] = {}
    name = candidate = ""
    versions: List[str] = []
    for line in [*text.splitlines(), "end:"]:
        if line and not line.startswith(" "):
            if name and candidate not in ("", "(none)"):
                available[name] = Available(candidate, tuple(versions))
            name, candidate, versions = line.rstrip(":"), "", []
        elif line.startswith("  Candidate: "):
            candidate = line[len("  Candidate: ") :].strip()
        else:
            version = re.match(r" (?:   |\*\*\*) (\S+) -?\d+$", line)
            if version:
                versions.append(version.group(1))
    return available
