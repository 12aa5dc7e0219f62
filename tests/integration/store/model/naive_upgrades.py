"""The naive model's upgrades: what is bound gets the parents that its role needs after a barclamp changed.

It imports nothing of the product.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.integration.store.model.naive_graph import PROPOSED, Key, NaiveGraph, Refused


@dataclass
class Relink:
    gained: set[Key]
    lost: set[Key]
    links: dict[str, Key]
    nodes: set[str]
    """Where somebody comes, or no longer comes, before it."""


class NaiveUpgrades(NaiveGraph):
    def outdated(self, deployment: str, kept: Collection[Key]) -> list[Key]:
        """Those that do not stand as their roles say, the oldest first."""
        found = [
            one.key
            for one in sorted(self.noderoles.values(), key=lambda one: one.born)
            if one.deployment == deployment and one.state != PROPOSED and not one.doomed and one.key in kept
        ]
        return [key for key in found if not self._stands_as_declared(key)]

    def _stands_as_declared(self, key: Key) -> bool:
        one = self.noderoles[key]
        owners = self._owners(key[1])
        return (
            all(self._answering(key, need, one.parents) for need in self.needed(key[1]))
            and one.parents == self._needed_parents(key)
            and one.links.keys() == owners.keys()
            and all(one.links[want] in self._answering(key, owner, one.parents) for want, owner in owners.items())
        )

    def _owners(self, name: str) -> dict[str, str]:
        role = self.roles[name]
        owners = {want: self.attribs[want].role for want in role.wants}
        return {want: owner for want, owner in owners.items() if owner and owner not in (name, *role.provides)}

    def _answering(self, key: Key, need: str, parents: Iterable[Key]) -> list[Key]:
        fitting = [p for p in parents if p[1] == need or need in self.roles[p[1]].provides]
        return sorted((p for p in fitting if p[0] == key[0] or not self.flag(need, "implicit")), key=self.rank)

    def _needed_parents(self, key: Key) -> set[Key]:
        parents = self.noderoles[key].parents
        return {parent for need in self.needed(key[1]) for parent in self._answering(key, need, parents)}

    def find_relinks(self, deployment: str, keys: list[Key], state: str) -> dict[Key, Relink]:
        """Bind what is missing and say what each would stand on; nothing stands on it yet."""
        found: dict[Key, dict[str, Key]] = {}
        for key in keys:
            found[key] = {}
            for need in self.needed(key[1]):
                if not self._answering(key, need, self.noderoles[key].parents):
                    there = self._find(deployment, key[0], need)
                    if there is None:
                        there = self._missing(deployment, key[0], need)
                        self._bind(deployment, *there, state, {})
                    found[key][need] = there
        relinks = {key: self._relink(deployment, key, needs) for key, needs in found.items()}
        before = {key: set(self.noderoles[key].parents) for key in keys}
        self.stand(relinks)
        self._check_lineage()
        for relink in relinks.values():
            relink.nodes |= self._nodes_above(relink.gained)
        for key, parents in before.items():
            self.noderoles[key].parents = parents
        return relinks

    def _relink(self, deployment: str, key: Key, found: dict[str, Key]) -> Relink:
        one = self.noderoles[key]
        gained = {peer for there in found.values() for peer in self._with_peers(there, deployment)} - one.parents
        lost = one.parents - self._needed_parents(key)
        links = {}
        for want, owner in self._owners(key[1]).items():
            answering = self._answering(key, owner, (one.parents - lost) | gained)
            first = self._with_peers(found[owner], deployment)[0] if owner in found else answering[0]
            links[want] = one.links[want] if one.links.get(want) in answering else first
        return Relink(gained, lost, links, self._nodes_above(lost))

    def _nodes_above(self, parents: set[Key]) -> set[str]:
        return {above[0] for parent in parents for above in {parent} | self.ancestors(parent)}

    def stand(self, relinks: dict[Key, Relink]) -> None:
        """Have each stand on its new parents; refused where that makes a circle."""
        for key, relink in relinks.items():
            self.noderoles[key].parents -= relink.lost
        for key, relink in relinks.items():
            for parent in relink.gained:
                if parent == key or key in self.ancestors(parent):
                    raise Refused("cycle")
                self.noderoles[key].parents.add(parent)

    def below_relinked(self, relinks: dict[Key, Relink]) -> set[Key]:
        """What has other ancestors on its own node than before."""
        return {low for key, relink in relinks.items() for low in self.descendants(key) if low[0] in relink.nodes}

    def follow(self, relinks: dict[Key, Relink]) -> set[Key]:
        """Have each stand on its new parents; gives what has other ancestors on its own node than before."""
        self.stand(relinks)
        for key, relink in relinks.items():
            self.noderoles[key].links = relink.links
        return self.below_relinked(relinks)

    # --- what an import looks at

    def all_declared(self, name: str, seen: set[str]) -> bool:
        """Whether everything that the role may pull in, or that may stand in for it, is there."""
        if name in seen:
            return True
        seen.add(name)
        standing_in = [other.name for other in self.roles.values() if name in other.provides]
        return (
            name in self.roles
            and all(want in self.attribs for want in self.roles[name].wants)
            and all(self.all_declared(other, seen) for other in [*self.needed(name), *standing_in])
        )

    def check_new_pairs(self, old: "NaiveUpgrades") -> None:
        for one in self.noderoles:
            for other in self.noderoles:
                if self.provides_each_other(one[1], other[1]) and not old.provides_each_other(one[1], other[1]):
                    raise Refused("still-bound")
                rivals = self.conflict(one[1], other[1]) and not old.conflict(one[1], other[1])
                if one[0] == other[0] and rivals:
                    raise Refused("still-bound")

    def own_values(self, name: str) -> object:
        role = self.roles[name]
        answered = [a for a in self.attribs.values() if a.role in {name, *role.provides}]
        wanted = [self.attribs[want] for want in role.wants if want in self.attribs]
        return (role.template, role.wants, role.jig, [(a.map, a.default, a.has_default) for a in answered + wanted])
