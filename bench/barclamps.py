"""How long a barclamp file takes to read: 1,000 roles, each with requires, a template and an attrib with a schema of
its own (the dear part), and four times as many to show that the time grows with the file and no faster. Seconds of this
process, because other work on the machine is no part of it."""

import time

from rackwright.barclamps.loader import known_kinds
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from report import at_most, emit

ROLES = 1000


def file_of(roles: int) -> str:
    parts = ["name: big\nroles:\n"]
    for number in range(roles):
        parents = ", ".join(f"r{parent}" for parent in range(max(0, number - 3), number))
        parts.append(
            f"- name: r{number}\n  jig: noop\n  requires: [{parents}]\n  flags: [milestone]\n"
            f"  template: {{r{number}: {{x: {number}}}}}\n"
            f"  attribs:\n  - {{name: a{number}, map: r{number}/x, default: {number},"
            f" schema: {{type: integer, minimum: -{roles}{number}}}}}\n"
        )
    return "".join(parts)


def seconds(roles: int) -> float:
    text = file_of(roles)
    start = time.process_time()
    parse_barclamp(text, "barclamp.yml", known_kinds())
    return time.process_time() - start


def main() -> None:
    seconds(10)  # the first use of JSON Schema loads its meta-schemas
    small, large = seconds(ROLES), seconds(4 * ROLES)
    emit(
        "barclamps",
        {"roles": ROLES, "seconds": round(small, 3), "seconds_for_4_times": round(large, 3)},
        [
            at_most("seconds for 1,000 roles", small, 1),
            at_most("4 times the roles, times the seconds", large / small, 6),
        ],
    )


if __name__ == "__main__":
    main()
