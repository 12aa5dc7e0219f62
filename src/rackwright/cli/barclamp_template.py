"""The template for `rackwright barclamp new`: a barclamp that works as it is and explains each of its lines."""

import re
from pathlib import Path

from rackwright.domain.errors import Invalid

JIGS = ("script", "simulate", "lab")

_FILE = """\
# A barclamp is a package of roles. This file says what they are; what they do lies beside it.
name: {name}
display: {title}
description: What this barclamp is for, in a line
version: "1.0"
# Barclamps whose roles and jigs this one uses.
parent: {parent}

roles:
  # The first of two roles: it is bound to a node by itself when something needs it ("implicit").
  - name: {name}-base
    jig: {jig}
    description: What every node of this kind gets first
{requires}{wants}    flags: [implicit]

  # The second is what people bind: a "milestone" is shown where roles are chosen.
  - name: {name}-server
    jig: {jig}
    description: The service itself
    requires: [{name}-base]
{wants}    flags: [milestone]
    # Values that people may set, on the deployment or on one node. The schema is checked on the way in.
    attribs:
      - name: {name}-greeting
        map: {name}/greeting
        description: What it says
        default: Hello
        schema:
          type: string
          maxLength: 80
{simulate}"""

_REQUIRES = """\
    # It needs an installed node. What it needs is bound and run before it.
    requires: [crowbar-installed-node]
"""

_SIMULATE = """\
      # The jig `simulate` only pretends to work. It reads here how long that takes, and how often it fails first.
      - name: {name}-simulate
        map: simulate
        description: How long a run takes, and how many attempts fail first
        default: {{seconds: 1}}
        schema:
          type: object
          properties:
            seconds: {{type: number, minimum: 0, maximum: 3600}}
            fail_times: {{type: integer, minimum: 0}}
          additionalProperties: false
"""

_WANTS = "    # Where the simulated machine is.\n    wants-attribs: [lab-bmc]\n"

_BASE = """\
#!/bin/sh
# Run on the node as root, in the order of the file names; the first that fails ends the run.
# What it prints is the run's log.
set -eu
mkdir -p /var/lib/{name}
echo "made /var/lib/{name}"
"""

_SERVER = """\
#!/bin/sh
# read_attribute gives a value of this role, write_attribute gives one back to whoever wants it.
set -eu
greeting=$(read_attribute {name}/greeting)
printf '%s\\n' "$greeting" > /var/lib/{name}/greeting
write_attribute {name}/written true
"""


def write_barclamp(folder: Path, jig: str) -> list[Path]:
    """Write a new barclamp into a folder, whose name is the barclamp's, and return the files written."""
    name = folder.name
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}[a-z0-9]", name):
        raise Invalid(f"A barclamp's name is small letters, digits and -, such as my-service; not {name!r}.")
    folder.mkdir(parents=True)
    values = {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "jig": jig,
        "parent": "lab" if jig == "lab" else "core",
        "requires": "" if jig == "simulate" else _REQUIRES,
        "wants": _WANTS if jig == "lab" else "",
        "simulate": _SIMULATE.format(name=name) if jig == "simulate" else "",
    }
    files = {"barclamp.yml": _FILE}
    if jig == "script":
        files |= {f"script/roles/{name}-base/10-folder.sh": _BASE, f"script/roles/{name}-server/10-greet.sh": _SERVER}
    written = []
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**values))
        if file.suffix == ".sh":
            file.chmod(0o755)
        written.append(file)
    return written
