"""Reading user-data: `#cloud-config` or a script. Other formats of cloud-init are refused, each with its reason.

What is left out is what cannot be judged before a machine is touched: parts that are fetched from somewhere at boot,
code that reads other parts, templates that become a document on the machine only.
"""

import re
from dataclasses import dataclass

from rackwright.domain.installs.cloud_init.yaml_document import BadYaml, YamlValue, read_document
from rackwright.domain.installs.request import Problem

ATTRIB = "provisioner-user-data"
LONGEST = 128 * 1024
"""Characters of user-data."""
CLOUD_CONFIG = "#cloud-config"
SCRIPT = "#!"
_LATER = "is put together on the machine, so nothing could be checked before"
REFUSED = {
    "## template:": f"a template {_LATER}. Write out what it becomes",
    "#include-once": f"an #include-once {_LATER}. Write out what it would fetch",
    "#include": f"an #include {_LATER}. Write out what it would fetch",
    "#cloud-config-archive": "archives are not taken. Write one #cloud-config: runcmd and write_files take scripts",
    "#cloud-config-jsonp": "JSON patches are not taken. Write one #cloud-config",
    "#part-handler": f"what a part handler makes {_LATER}",
    "#cloud-boothook": "boot hooks are not taken. Use bootcmd in a #cloud-config",
    "#upstart-job": "upstart jobs are not taken: cloud-init no longer knows them",
    "Content-Type:": "multipart MIME is not taken. Write one #cloud-config: runcmd and write_files take scripts",
    "MIME-Version:": "multipart MIME is not taken. Write one #cloud-config: runcmd and write_files take scripts",
}
"""The beginnings of formats that are refused, and why; the longer of two that begin alike first."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML forbids in a file, and what no script of ours may hold."""


@dataclass(frozen=True)
class UserData:
    """User-data that can be given to cloud-init."""

    text: str
    document: YamlValue | None
    """The document of a `#cloud-config`; None: it is a script."""


class BadUserData(Exception):
    """User-data that is not taken."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_user_data(text: str) -> UserData:
    """Return user-data, read; BadUserData if it is of a kind that is not taken, or cannot be read."""
    if len(text) > LONGEST:
        raise _refuse(f"user-data has more than {LONGEST} characters", 1)
    character = _FORBIDDEN.search(text)
    if character is not None:
        line = text.count("\n", 0, character.start()) + 1
        raise _refuse(f"the character U+{ord(character.group()):04X} is not allowed", line)
    if text.startswith(SCRIPT):
        return UserData(text, None)
    for beginning, reason in REFUSED.items():
        if text.lower().startswith(beginning.lower()):
            raise _refuse(reason, 1)
    if text.split("\n", 1)[0].rstrip() != CLOUD_CONFIG:
        raise _refuse(f"the first line is {CLOUD_CONFIG}, or {SCRIPT} and the interpreter of a script", 1)
    return UserData(text, _read_cloud_config(text))


def _read_cloud_config(text: str) -> YamlValue:
    try:
        document = read_document(text)
    except BadYaml as error:
        raise _refuse(error.reason, error.line) from None
    if document is None or not isinstance(document.value, dict):
        raise _refuse(f"a {CLOUD_CONFIG} is a mapping of cloud-init's keys", 1 if document is None else document.line)
    return document


def _refuse(reason: str, line: int) -> BadUserData:
    return BadUserData(Problem(ATTRIB, reason, line))
