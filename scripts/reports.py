"""Reads what pytest wrote about its runs (`--junitxml`)."""

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """How one test ended."""

    name: str
    seconds: float
    failed: bool


def read_report(path: Path) -> list[Result]:
    """Return the results of one run of pytest; of a test that failed and then failed to clean up, both are told."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return [
        Result(
            f"{case.get('classname')}::{case.get('name')}",
            float(case.get("time", 0)),
            case.find("failure") is not None or case.find("error") is not None,
        )
        for case in cases
    ]
