"""dnf's `.repo` files, edited section by section."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from ...module import Arguments, StateError
from ...support.files import read_bytes

PARTS = "/etc/yum.repos.d"
SETTINGS = ("baseurl", "mirrorlist", "metalink", "gpgkey")


def file_of(arguments: Arguments) -> str:
    return str(arguments.get("file") or f"{PARTS}/{arguments['name']}.repo")


def settings(arguments: Arguments) -> Dict[str, str]:
    found: Dict[str, Any] = {"name": arguments.get("humanname") or arguments["name"]}
    found.update({key: arguments[key] for key in SETTINGS if arguments.get(key)})
    if len(found.keys() & {"baseurl", "mirrorlist", "metalink"}) == 0:
        raise StateError(f"repository {arguments['name']} has no address; give baseurl, mirrorlist or metalink")
    disabled = not arguments.get("enabled", True) or bool(arguments.get("disabled"))
    found["enabled"] = not disabled
    if arguments.get("gpgcheck") is not None:
        found["gpgcheck"] = arguments["gpgcheck"]
    found.update(arguments.get("settings") or {})
    return {key: _write(value) for key, value in found.items()}


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return " ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def wanted_files(arguments: Arguments, root: str) -> Tuple[Dict[str, Optional[bytes]], str]:
    path, name = file_of(arguments), str(arguments["name"])
    body = "".join(f"{key}={value}\n" for key, value in settings(arguments).items())
    comments = "".join(f"# {comment}\n" for comment in arguments.get("comments") or [])
    wanted = f"[{name}]\n{comments}{body}"
    sections = _sections((read_bytes(root + path) or b"").decode("utf-8", "replace"))
    places = [at for at, section in enumerate(sections) if _title(section) == name]
    if places:
        sections[places[0]] = wanted
    else:
        sections.append(wanted)
    kept = [section for at, section in enumerate(sections) if at not in places[1:]]
    return {path: "\n".join(kept).encode()}, name


def files_without(arguments: Arguments, root: str) -> Dict[str, Optional[bytes]]:
    import glob

    name = str(arguments["name"])
    files: Dict[str, Optional[bytes]] = {}
    for path in sorted({*glob.glob(f"{root}{PARTS}/*.repo"), root + file_of(arguments)}):
        sections = _sections((read_bytes(path) or b"").decode("utf-8", "replace"))
        left = [section for section in sections if _title(section) != name]
        if len(left) != len(sections):
            worth = any(_title(section) for section in left)
            files[path[len(root) :]] = "\n".join(left).encode() if worth else None
    return files


def _sections(text: str) -> List[str]:
    """What stands before the first [title], if anything, and each section."""
    return [part.strip("\n") + "\n" for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE) if part.strip()]


def _title(section: str) -> str:
    found = re.match(r"\[([^\]]+)\]", section)
    return found.group(1).strip() if found else ""
