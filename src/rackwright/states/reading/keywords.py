"""The keywords of a state file: requisites, their `_in` forms, and the options that the engine handles itself.

There is one table for each, so that parsing, "did you mean", the graph and the documentation cannot disagree.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Tuple

# In order of weight: where a state has dependants of several kinds, the heavier kind decides how early it is to run.
REQUISITE_KINDS: Tuple[str, ...] = (
    "onfail",
    "onfail_any",
    "onfail_all",
    "require",
    "require_any",
    "onchanges",
    "onchanges_any",
    "watch",
    "watch_any",
    "prereq",
)
WEIGHT: Dict[str, int] = {kind: weight for weight, kind in enumerate(REQUISITE_KINDS)}

# The order in which a state's requisites enter the graph; it decides ties, so it is Salt's.
ENTRY_ORDER: Tuple[str, ...] = (
    "require",
    "require_any",
    "watch",
    "watch_any",
    "prereq",
    "onfail",
    "onfail_any",
    "onfail_all",
    "onchanges",
    "onchanges_any",
)

REQUISITES: FrozenSet[str] = frozenset((*REQUISITE_KINDS, "listen"))
"""The keywords that `extend` adds entries to; anything else it replaces."""

IN_FORMS: Dict[str, str] = {
    "require_in": "require",
    "watch_in": "watch",
    "onchanges_in": "onchanges",
    "onfail_in": "onfail",
    "prereq_in": "prereq",
}
"""`_in` form -> the requisite it adds to its target. `listen_in`, `use` and `use_in` have rules of their own."""

OPTIONS: FrozenSet[str] = frozenset(
    (
        *("order", "unless", "onlyif", "creates", "check_cmd", "retry", "failhard", "parallel", "no_log"),
        # These order the servers of a mesh run; a single server has no other to wait for.
        *("sync", "serialize"),
    )
)

IGNORED_OPTIONS: FrozenSet[str] = frozenset(
    (
        "reload_modules",
        "reload_grains",
        "reload_pillar",
        "fire_event",
        "aggregate",
        "saltenv",
        "onfail_stop",
        "cmd_opts_exclude",
    )
)
"""Options of Salt that are accepted because existing states have them, and that do nothing here."""

ENGINE_KEYWORDS: FrozenSet[str] = frozenset(
    (*REQUISITES, *IN_FORMS, "listen_in", "use", "use_in", *OPTIONS, *IGNORED_OPTIONS, "name", "names")
)
