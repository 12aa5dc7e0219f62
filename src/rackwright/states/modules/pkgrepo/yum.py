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
    values: Dict[str, Any] = {"name": arguments.get("humanname") or arguments["name"]}
    values.update({key: arguments[key] for key in SETTINGS if arguments.get(key)})
    if len(values.keys() & {"baseurl", "mirrorlist", "metalink"}) == 0:
        raise StateError(f"repository {arguments['name']} has no address; give baseurl, mirrorlist or metalink")
    disabled = not arguments.get("enabled", True) or bool(arguments.get("disabled"))
    values["enabled"] = not disabled
    if arguments.get("gpgcheck") is not None:
        values["gpgcheck"] = arguments["gpgcheck"]
    values.update(arguments.get("settings") or {})
    return {key: _format_value(value) for key, value in values.items()}


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return " ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def wanted_files(arguments: Arguments, root: str) -> Tuple[Dict[str, Optional[bytes]], str]:
    path, name = file_of(arguments), str(arguments["name"])
    body = "".join(f"{key}={value}\n" for key, value in settings(arguments).items())
    comments = "".join(f"# {comment}\n" for comment in arguments.get("comments") or [])
    new_section = f"[{name}]\n{comments}{body}"
    sections = _sections((read_bytes(root + path) or b"").decode("utf-8", "replace"))
    positions = [index for index, section in enumerate(sections) if _title(section) == name]
    if positions:
        sections[positions[0]] = new_section
    else:
        sections.append(new_section)
    remaining = [section for index, section in enumerate(sections) if index not in positions[1:]]
    return {path: "\n".join(remaining).encode()}, name


def files_without(arguments: Arguments, root: str) -> Dict[str, Optional[bytes]]:
    import glob

    name = str(arguments["name"])
    files: Dict[str, Optional[bytes]] = {}
    for path in sorted({*glob.glob(f"{root}{PARTS}/*.repo"), root + file_of(arguments)}):
        sections = _sections((read_bytes(path) or b"").decode("utf-8", "replace"))
        remaining = [section for section in sections if _title(section) != name]
        if len(remaining) != len(sections):
            has_sections = any(_title(section) for section in remaining)
            files[path[len(root) :]] = "\n".join(remaining).encode() if has_sections else None
    return files


def _sections(text: str) -> List[str]:
    """Return the text before the first [title], if there is any, and each section."""
    return [part.strip("\n") + "\n" for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE) if part.strip()]


def _title(section: str) -> str:
    match = re.match(r"\[([^\]]+)\]", section)
    return match.group(1).strip() if match else ""
