"""The package sources of this host's apt, narrowed to the entries that offer one release.

apt reads `sources.list` and every `*.list` and `*.sources` beside it. An image gets the entries of its own release and
of its updates alone: a host that also knows a newer release must not mix it into the image. A Debian that this host
does not know at all is taken from where this host's own Debian comes from: a mirror has all releases side by side.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rackwright.domain.architectures import Architecture

APT_FOLDER = Path("/etc/apt")
ONE_LINE = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(?P<suite>\S+)(?P<components>.*)")
DEBIAN_RELEASES = ("trixie", "bookworm")
"""The releases of Debian that lie side by side on every mirror, the newest first."""
MAIN = "main"
"""The component that an archive of Debian itself has, and most archives of others do not."""
FIELD = re.compile(r"(?P<name>[^\s:#]+):\s*(?P<value>.*)")
ONE_LINE_LIMIT = re.compile(r"\barch=(?P<architectures>[^\s\]]+)")
STANZA_LIMIT = re.compile(r"^Architectures:(?P<architectures>.*\n(?:[ \t].*\n)*)", re.MULTILINE)
"""The part of an entry that limits it to some architectures, in apt's two formats."""
EMPTY_OPTIONS = re.compile(r"\[\s*\]")


def write_host_sources(
    suite: str, into: Path, architecture: Architecture = Architecture.AMD64, apt: Path = APT_FOLDER
) -> list[Path]:
    """Write this host's entries for a release into a folder, a file for each of apt's two formats.

    An entry that the host limits to other architectures is taken without that limit: it says what the host installs
    from there, not what the archive has.

    For a Debian of which the host has no entry, write those of a Debian that it has, with the other release's name:
    same archives, same keys. Return the files; none are written if there is nothing to write.
    """
    entries = (list(_one_line_entries(suite, apt)), list(_deb822_entries(suite, apt)))
    if not any(entries) and suite in DEBIAN_RELEASES:
        entries = derive_debian_entries(suite, apt)
    lines = [EMPTY_OPTIONS.sub("", _without_limit(line, ONE_LINE_LIMIT, architecture)) for line in entries[0]]
    stanzas = [_without_limit(stanza, STANZA_LIMIT, architecture) for stanza in entries[1]]
    texts = {into / "host.list": "".join(f"{line}\n" for line in lines), into / "host.sources": "\n".join(stanzas)}
    for path, text in texts.items():
        if text:
            path.write_text(text)
    return [path for path, text in texts.items() if text]


def _without_limit(entry: str, limit: re.Pattern[str], architecture: Architecture) -> str:
    """Return an entry without what limits it to other architectures."""
    found = limit.search(entry)
    if found is None or architecture in found["architectures"].replace(",", " ").split():
        return entry
    return entry[: found.start()] + entry[found.end() :]


def derive_debian_entries(release: str, apt: Path = APT_FOLDER) -> tuple[list[str], list[str]]:
    """Return the entries of a Debian that this host knows, changed to another release, in apt's two formats.

    Only entries of the component `main` are taken: an archive of somebody else may not have the other release.
    """
    for known in DEBIAN_RELEASES:
        suite = re.compile(rf"\b{known}(?=-updates\b|-security\b|\s|$)")
        lines = [
            suite.sub(release, line)
            for line in _one_line_entries(known, apt)
            if (entry := ONE_LINE.match(line)) and MAIN in entry["components"].split()
        ]
        stanzas = [
            "".join(
                suite.sub(release, line) if line.startswith("Suites:") else line for line in stanza.splitlines(True)
            )
            for stanza in _deb822_entries(known, apt)
            if MAIN in _fields(stanza).get("components", "").split()
        ]
        if lines or stanzas:
            return lines, stanzas
    return [], []


def _is_of_release(suite: str, release: str) -> bool:
    """Whether a suite as apt names it is the release itself, its updates, or its security updates."""
    return suite in (release, f"{release}-updates", f"{release}-security")


def _one_line_entries(release: str, apt: Path) -> Iterator[str]:
    """Yield the entries of the one-line format."""
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))):
        for line in path.read_text().splitlines() if path.is_file() else ():
            entry = ONE_LINE.match(line.strip())
            if entry and _is_of_release(entry["suite"], release):
                yield line.strip()


def _deb822_entries(release: str, apt: Path) -> Iterator[str]:
    """Yield the entries of the deb822 format, each with those of its suites that belong to the release."""
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n[ \t]*\n", path.read_text()):
            fields = _fields(stanza)
            suites = [suite for suite in fields.get("suites", "").split() if _is_of_release(suite, release)]
            enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0", "off")
            if suites and enabled and "deb" in fields.get("types", "").split():
                entry = {**fields, "types": "deb", "suites": " ".join(suites)}
                yield "".join(f"{name.title()}: {value}\n" for name, value in entry.items())


def _fields(stanza: str) -> dict[str, str]:
    """Return the fields of a stanza by their names in small letters; a value of several lines keeps its lines."""
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace() and name:
            fields[name] += f"\n{line}"
        elif field := FIELD.match(line):
            name = field["name"].lower()
            fields[name] = field["value"]
    return fields
