"""The naive model's upgrades: what is bound gets the parents that its role needs after a barclamp changed.

It imports nothing of the product.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.integration.store.model.naive_graph import PROPOSED, Key, NaiveGraph, RefusedByModel


@dataclass
class Relink:
    gained: set[Key]
    lost: set[Key]
    links: dict[str, Key]
    nodes: set[str]
    """The nodes on which it gains or loses ancestors."""


class NaiveUpgrades(NaiveGraph):
    def outdated(self, deployment: str, proposed_keys: Collection[Key]) -> list[Key]:
        """Return the noderoles that do not have the parents and links their roles declare, the oldest first."""
        keys = [
            noderole.key
            for noderole in sorted(self.noderoles.values(), key=lambda noderole: noderole.born)
            if noderole.deployment == deployment
            and noderole.state != PROPOSED
            and not noderole.doomed
            and noderole.key in proposed_keys
        ]
        return [key for key in keys if not self._stands_as_declared(key)]

    def _stands_as_declared(self, key: Key) -> bool:
        noderole = self.noderoles[key]
        owners = self._owners(key[1])
        return (
            all(self._answering(key, need, noderole.parents) for need in self.needed(key[1]))
            and noderole.parents == self._needed_parents(key)
            and noderole.links.keys() == owners.keys()
            and all(
                noderole.links[want] in self._answering(key, owner, noderole.parents) for want, owner in owners.items()
            )
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
        """Bind what is missing, and return the new parents of each; they are not put above it yet."""
        new_parents: dict[Key, dict[str, Key]] = {}
        for key in keys:
            new_parents[key] = {}
            for need in self.needed(key[1]):
                if not self._answering(key, need, self.noderoles[key].parents):
                    parent_key = self._find(deployment, key[0], need)
                    if parent_key is None:
                        parent_key = self._missing(deployment, key[0], need)
                        self._bind(deployment, *parent_key, state, {})
                    new_parents[key][need] = parent_key
        relinks = {key: self._relink(deployment, key, needs) for key, needs in new_parents.items()}
        before = {key: set(self.noderoles[key].parents) for key in keys}
        self.apply_parents(relinks)
        self._check_lineage()
        for relink in relinks.values():
            relink.nodes |= self._nodes_above(relink.gained)
        for key, parents in before.items():
            self.noderoles[key].parents = parents
        return relinks

    def _relink(self, deployment: str, key: Key, new_parents: dict[str, Key]) -> Relink:
        noderole = self.noderoles[key]
        gained = {
            peer for parent_key in new_parents.values() for peer in self._with_peers(parent_key, deployment)
        } - noderole.parents
        lost = noderole.parents - self._needed_parents(key)
        links = {}
        for want, owner in self._owners(key[1]).items():
            answering = self._answering(key, owner, (noderole.parents - lost) | gained)
            first = self._with_peers(new_parents[owner], deployment)[0] if owner in new_parents else answering[0]
            links[want] = noderole.links[want] if noderole.links.get(want) in answering else first
        return Relink(gained, lost, links, self._nodes_above(lost))

    def _nodes_above(self, parents: set[Key]) -> set[str]:
        return {above[0] for parent in parents for above in {parent} | self.ancestors(parent)}

    def apply_parents(self, relinks: dict[Key, Relink]) -> None:
        """Put each under its new parents; refused where that makes a circle."""
        for key, relink in relinks.items():
            self.noderoles[key].parents -= relink.lost
        for key, relink in relinks.items():
            for parent in relink.gained:
                if parent == key or key in self.ancestors(parent):
                    raise RefusedByModel("cycle")
                self.noderoles[key].parents.add(parent)

    def below_relinked(self, relinks: dict[Key, Relink]) -> set[Key]:
        """Return the noderoles that have other ancestors on their own node than before."""
        return {low for key, relink in relinks.items() for low in self.descendants(key) if low[0] in relink.nodes}

    def follow(self, relinks: dict[Key, Relink]) -> set[Key]:
        """Put each under its new parents; return those that have other ancestors on their own node than before."""
        self.apply_parents(relinks)
        for key, relink in relinks.items():
            self.noderoles[key].links = relink.links
        return self.below_relinked(relinks)

    # --- what an import looks at

    def all_declared(self, name: str, seen: set[str]) -> bool:
        """Return whether everything that the role may pull in, or that may provide it, exists."""
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
        for key in self.noderoles:
            for other in self.noderoles:
                if self.provides_each_other(key[1], other[1]) and not old.provides_each_other(key[1], other[1]):
                    raise RefusedByModel("still-bound")
                rivals = self.conflict(key[1], other[1]) and not old.conflict(key[1], other[1])
                if key[0] == other[0] and rivals:
                    raise RefusedByModel("still-bound")

    def own_values(self, name: str) -> object:
        role = self.roles[name]
        supplied_attribs = [a for a in self.attribs.values() if a.role in {name, *role.provides}]
        wanted_attribs = [self.attribs[want] for want in role.wants if want in self.attribs]
        return (
            role.template,
            role.wants,
            role.jig,
            [(a.map, a.default, a.has_default) for a in supplied_attribs + wanted_attribs],
        )
