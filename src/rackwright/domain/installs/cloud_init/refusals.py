"""What user-data may not say, although cloud-init would take it: the server would lose the machine.

The server knows a machine by its SSH host key and logs in as root. An install ends when the machine answers.
"""

from collections.abc import Callable, Iterator

from rackwright.domain.installs.cloud_init.yaml_document import YamlValue


def find_refusals(document: YamlValue) -> Iterator[tuple[str, int]]:
    """Yield what a document may not say, each with its line."""
    for path, is_refused, reason in _REFUSED:
        value = document.find(*path)
        if value is not None and is_refused(value):
            yield f"{'.'.join(path)}: {reason}", value.key_line


def _is_true(value: YamlValue) -> bool:
    return value.value not in (False, None, "false", "False", "no", "off", "0", 0)


def _is_there(value: YamlValue) -> bool:
    return value.value is not None


def _is_end(value: YamlValue) -> bool:
    return value.value in ("poweroff", "halt")


_REFUSED: tuple[tuple[tuple[str, ...], Callable[[YamlValue], bool], str], ...] = (
    (
        ("ssh_deletekeys",),
        _is_true,
        "the server knows the machine by its SSH host key, and would refuse the new one. Leave it out",
    ),
    (
        ("ssh_keys",),
        _is_there,
        "the server knows the machine by its SSH host key, which the installer made. Leave it out",
    ),
    (
        ("disable_root",),
        _is_true,
        "the server logs in as root, by its key. Leave it out; a password of root is not set by us",
    ),
    (
        ("power_state", "mode"),
        _is_end,
        "an install ends when the installed machine answers. Use reboot, or switch it off later",
    ),
)
