"""Random barclamps for the stateful test, as the naive model has them and as the product reads them."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.integration.store.model.dice import Dice, composite, integers, lists, sampled_from
from tests.integration.store.model.naive_graph import Attrib, Role

from rackwright.domain import catalogue as product

FLAGS: Sequence[frozenset[str]] = [
    frozenset(flags.split())
    for flags in (
        *[""] * 8,
        *["implicit"] * 5,
        *["cluster"] * 7,
        *("service", "destructive", "destructive", "abstract", "milestone", "powersave"),
        *("implicit destructive", "cluster destructive", "cluster service"),
    )
]
FIRST_FLAGS: Sequence[frozenset[str]] = [
    *FLAGS,
    *FLAGS,
    *(frozenset(flags.split()) for flags in ("discovery", "discovery implicit", "discovery cluster", "bootstrap")),
]
VALUES = (1, 2, 3)


@dataclass
class Declaration:
    """What one barclamp declares."""

    roles: list[Role] = field(default_factory=list)
    attribs: list[Attrib] = field(default_factory=list)
    clients: dict[str, str | None] = field(default_factory=lambda: {"hand": None, "tool": None})


def attrib_map(number: int) -> list[str]:
    """Return where the attrib with this number lies; a few share a map."""
    return ["shared", f"k{number}"] if number % 2 else [f"k{number}"]


@composite
def layers(dice: Dice) -> dict[str, Any]:
    """Choose data as a person, a template or a run might give it."""
    data: dict[str, Any] = {}
    for number in dice.draw(lists(integers(0, 4), 0, 2)):
        steps = attrib_map(number)
        inner = data.setdefault(steps[0], {}) if len(steps) > 1 else data
        inner[steps[-1]] = dice.draw(sampled_from(VALUES))
    return data


@composite
def declared(dice: Dice) -> Declaration:
    count = dice.draw(integers(3, 8))
    names = [f"r{index}" for index in range(count)]
    result = Declaration()
    result.attribs.append(Attrib("fact", None, ["k0"]))
    for index, name in enumerate(names):
        result.roles.append(_role(dice, names, index, [attrib.name for attrib in result.attribs]))
        if dice.one_in(3):
            has_default = dice.one_in(2)
            default = dice.draw(sampled_from(VALUES)) if has_default else None
            result.attribs.append(Attrib(f"of-{name}", name, attrib_map(index % 5), default, has_default))
    if "implicit" in result.roles[0].flags:
        result.clients["tool"] = "r0"
        result.roles[0].jig = "hand"
    return result


def importable(declaration: Declaration) -> Declaration:
    """Return the same without what refuses an import: no role requires a later one, or is bound by the import."""
    after = copy.deepcopy(declaration)
    names = [role.name for role in after.roles]
    for index, role in enumerate(after.roles):
        role.requires = [name for name in role.requires if name not in names[index:]]
        role.flags -= {"bootstrap"}
    return after


def _role(dice: Dice, names: list[str], index: int, attribs: list[str]) -> Role:
    def some(of: Sequence[str], one_in: int, most: int) -> list[str]:
        if not of or not dice.one_in(one_in):
            return []
        return dice.draw(lists(sampled_from(of), 1, most))

    before, after = names[:index], names[index + 1 :]
    others = before + after
    role = Role(names[index], jig=dice.draw(sampled_from(("hand", "hand", "tool"))))
    role.flags = set(dice.draw(sampled_from(FIRST_FLAGS if index < 2 else FLAGS)))
    role.provides = some(others, 3, 1)
    role.requires = list(dict.fromkeys(some(before, 1, 2) + some([*others, "ghost"], 60, 1)))
    role.requires = [name for name in role.requires if name not in role.provides]
    role.attaches = [name for name in some(after, 6, 1) if name not in role.requires]
    role.conflicts = some(others, 5, 1)
    role.wants = some(attribs, 2, 2)
    role.template = dice.draw(layers())
    return role


@composite
def amended(dice: Dice, before: Declaration) -> Declaration:
    """Choose the same barclamp with one change."""
    after = copy.deepcopy(before)
    role = dice.draw(sampled_from(after.roles))
    names = [other.name for other in after.roles if other is not role]
    kinds = ("template", "template", "conflicts", "provides", "flags", "drop", "more", "more", "less", "wants")
    match dice.draw(sampled_from(kinds)):
        case "template":
            role.template = dice.draw(layers())
        case "conflicts":
            role.conflicts = [dice.draw(sampled_from(names))]
        case "provides":
            role.provides = [name for name in [dice.draw(sampled_from(names))] if name not in role.requires]
        case "flags":
            role.flags = set(dice.draw(sampled_from(FLAGS)))
        case "drop":
            owns = any(attrib.role == role.name for attrib in after.attribs)
            if not owns and role.name != "r0" and len(names) > 1:
                after.roles.remove(role)
        case "less":
            role.requires = role.requires[:-1]
        case "wants":
            role.wants = dice.draw(lists(sampled_from([attrib.name for attrib in after.attribs]), 0, 2))
        case "more":
            role.requires = [*dict.fromkeys([*role.requires, dice.draw(sampled_from(names))])]
            role.requires = [name for name in role.requires if name not in role.provides]
    if "implicit" not in after.roles[0].flags:
        after.clients["tool"] = None
    return after


def as_product(declared: Declaration) -> product.Barclamp:
    return product.Barclamp(
        name="random",
        jigs=tuple(
            product.Jig(name, "random", "noop", client_role=client) for name, client in declared.clients.items()
        ),
        roles=tuple(
            product.Role(
                name=role.name,
                barclamp="random",
                jig=role.jig,
                requires=tuple(role.requires),
                attaches=tuple(role.attaches),
                wants=tuple(role.wants),
                provides=tuple(role.provides),
                conflicts=tuple(role.conflicts),
                flags=frozenset(product.Flag(flag) for flag in role.flags),
                template=role.template,
            )
            for role in declared.roles
        ),
        attribs=tuple(
            product.Attrib(
                name=attrib.name,
                barclamp="random",
                map=tuple(attrib.map),
                role=attrib.role,
                schema={"type": "integer"},
                default=attrib.default,
                has_default=attrib.has_default,
            )
            for attrib in declared.attribs
        ),
    )
