"""apt's sources: one-line `.list` files and deb822 `.sources` files, edited entry by entry, and their keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Dict, List, Optional, Tuple

from ...module import Arguments, Context, StateError
from ...support.content import download, is_url, read_source
from ...support.files import read_bytes

ONE_LINE = re.compile(
    r"^(?P<types>deb|deb-src)\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>.*)$"
)
PARTS = "/etc/apt/sources.list.d"
KEYRINGS = "/etc/apt/keyrings"


@dataclass(frozen=True)
class Entry:
    """One repository. Type, address and suite identify it; the other fields say how it is used."""

    types: str
    uri: str
    suite: str
    components: Tuple[str, ...] = ()
    options: Dict[str, str] = field(default_factory=dict)
    disabled: bool = False

    def same_repository(self, other: "Entry") -> bool:
        own_key, other_key = (
            (self.types, self.uri.rstrip("/"), self.suite),
            (other.types, other.uri.rstrip("/"), other.suite),
        )
        return own_key == other_key

    def one_line(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options.items())
        parts = [self.types, f"[{options}]" if options else "", self.uri, self.suite, *self.components]
        return ("# " if self.disabled else "") + " ".join(part for part in parts if part)

    def stanza(self) -> str:
        fields = {"Enabled": "no"} if self.disabled else {}
        fields.update({"Types": self.types, "URIs": self.uri, "Suites": self.suite})
        if self.components:
            fields["Components"] = " ".join(self.components)
        names = {"arch": "Architectures", "signed-by": "Signed-By", "trusted": "Trusted"}
        for key, value in self.options.items():
            fields[names.get(key, key.capitalize())] = value.replace(",", " ") if key == "arch" else value
        return "".join(f"{key}: {value}\n" for key, value in fields.items())


def parse_one_line(line: str) -> Optional[Entry]:
    text = line.strip()
    disabled = text.startswith("#")
    match = ONE_LINE.match(text.lstrip("# "))
    if match is None:
        return None
    options = dict(part.partition("=")[::2] for part in (match["options"] or "").split())
    components = tuple(match["rest"].split("#")[0].split())
    return Entry(match["types"], match["uri"], match["suite"], components, options, disabled)


def parse_stanza(text: str) -> Optional[Entry]:
    fields = {key.lower(): value.strip() for key, value in re.findall(r"^([\w-]+):(.*)$", text, re.MULTILINE)}
    if not {"types", "uris", "suites"} <= fields.keys():
        return None
    return Entry(fields["types"], fields["uris"], fields["suites"])


def wanted_entry(arguments: Arguments) -> Entry:
    """Return the entry of a state: its one-line name, and what the other arguments add."""
    entry = parse_one_line(str(arguments["name"]))
    if entry is None:
        raise StateError(f"{arguments['name']!r} is no repository for apt; write: deb ADDRESS SUITE COMPONENT ...")
    options = dict(entry.options)
    if arguments.get("architectures"):
        options["arch"] = ",".join(str(name) for name in arguments["architectures"])
    if arguments.get("trusted"):
        options["trusted"] = "yes"
    if arguments.get("signedby"):
        options["signed-by"] = str(arguments["signedby"])
    components = tuple(arguments.get("comps") or entry.components)
    disabled = not arguments.get("enabled", True) or bool(arguments.get("disabled"))
    suite = str(arguments.get("dist") or entry.suite)
    return replace(entry, suite=suite, components=components, options=options, disabled=disabled)


def slug(entry: Entry) -> str:
    """Return a file name that says which repository it is for."""
    text = re.sub(r"^\w+:/*", "", entry.uri) + "-" + entry.suite
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.").lower()


def file_of(arguments: Arguments, entry: Entry) -> str:
    ending = "sources" if arguments.get("deb822") else "list"
    return str(arguments.get("file") or f"{PARTS}/{slug(entry)}.{ending}")


def key_content(arguments: Arguments, context: Context, path: Optional[str], root: str) -> Optional[bytes]:
    """Return the key of a state, or None. A key from the network is fetched only if there is none yet."""
    if arguments.get("key_text"):
        return str(arguments["key_text"]).strip().encode() + b"\n"
    url = str(arguments.get("key_url") or "")
    if not url:
        return None
    if not is_url(url):
        return read_source(url, context, str(arguments.get("key_hash") or ""))
    current = read_bytes(root + path) if path else None
    if current is not None and not arguments.get("key_hash"):
        return current
    if arguments.get("key_hash"):
        return read_source(url, context, str(arguments["key_hash"]))
    return download(url)


def wanted_files(arguments: Arguments, context: Context, root: str) -> Tuple[Dict[str, Optional[bytes]], str]:
    """Path -> new content of every file this repository needs, and the source file to refresh from."""
    entry = wanted_entry(arguments)
    files: Dict[str, Optional[bytes]] = {}
    keyring = entry.options.get("signed-by")
    guess = keyring or f"{KEYRINGS}/{slug(entry)}.asc"
    key = key_content(arguments, context, guess, root)
    if key is not None:
        if keyring is None:
            # apt tells armoured from binary keys by the ending of the name.
            keyring = guess if key.startswith(b"-----BEGIN") else guess[: -len("asc")] + "gpg"
            entry = replace(entry, options={**entry.options, "signed-by": keyring})
        files[keyring] = key
    path = file_of(arguments, entry)
    before = (read_bytes(root + path) or b"").decode("utf-8", "replace")
    files[path] = edit_repository_file(before, path, entry, list(arguments.get("comments") or [])).encode()
    return files, path


def edit_repository_file(text: str, path: str, entry: Entry, comments: List[str]) -> str:
    """Return the text of an apt source file with the entry in it, in the place of an older one of its repository."""
    return _edit_stanzas(text, entry, comments) if path.endswith(".sources") else _edit_lines(text, entry, comments)


def _edit_lines(text: str, entry: Entry, comments: List[str]) -> str:
    lines = text.splitlines()
    positions = [index for index, line in enumerate(lines) if _is_same_repository(parse_one_line(line), entry)]
    new_line = entry.one_line()
    if not positions:
        return "\n".join([*lines, *(f"# {comment}" for comment in comments), new_line]) + "\n"
    lines[positions[0]] = new_line
    return "\n".join(line for index, line in enumerate(lines) if index not in positions[1:]) + "\n"


def _edit_stanzas(text: str, entry: Entry, comments: List[str]) -> str:
    stanzas = _stanzas(text)
    positions = [index for index, stanza in enumerate(stanzas) if _is_same_repository(parse_stanza(stanza), entry)]
    new_stanza = "".join(f"# {comment}\n" for comment in comments) + entry.stanza()
    if positions:
        stanzas[positions[0]] = new_stanza
    else:
        stanzas.append(new_stanza)
    return "\n".join(stanza for index, stanza in enumerate(stanzas) if index not in positions[1:])


def _stanzas(text: str) -> List[str]:
    return [stanza.strip("\n") + "\n" for stanza in re.split(r"\n\s*\n", text) if stanza.strip()]


def _is_same_repository(parsed: Optional[Entry], entry: Entry) -> bool:
    return parsed is not None and parsed.same_repository(entry)


def remove_repository(text: str, path: str, entry: Entry) -> str:
    """Return the text of a file without this repository."""
    if path.endswith(".sources"):
        return "\n".join(stanza for stanza in _stanzas(text) if not _is_same_repository(parse_stanza(stanza), entry))
    lines = [line for line in text.splitlines() if not _is_same_repository(parse_one_line(line), entry)]
    return "".join(f"{line}\n" for line in lines)


def files_without(arguments: Arguments, root: str) -> Dict[str, Optional[bytes]]:
    """Return path -> remaining content (None: no entry is left) of every source file that names this repository."""
    import glob

    entry = wanted_entry(arguments)
    patterns = ("/etc/apt/sources.list", f"{PARTS}/*.list", f"{PARTS}/*.sources")
    paths = {path for pattern in patterns for path in glob.glob(root + pattern)}
    if arguments.get("file"):
        paths.add(root + str(arguments["file"]))
    files: Dict[str, Optional[bytes]] = {}
    for path in sorted(paths):
        text = (read_bytes(path) or b"").decode("utf-8", "replace")
        remaining = remove_repository(text, path, entry)
        if remaining != text:
            has_entries = any(line.strip() and not line.startswith("#") for line in remaining.splitlines())
            files[path[len(root) :]] = remaining.encode() if has_entries else None
    for ending in ("asc", "gpg"):
        # Only the keyring that a state of this repository would have made; others may be shared.
        keyring = f"{KEYRINGS}/{slug(entry)}.{ending}"
        if files and read_bytes(root + keyring) is not None:
            files[keyring] = None
    return files
