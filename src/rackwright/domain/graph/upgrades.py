"""Upgrades: bound noderoles get the parents that their roles need after a barclamp changed. Pure, like binding.

A parent that still satisfies a need stays; only a missing parent is searched for, by the rules of binding; a parent
that is no longer needed is dropped.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from rackwright.domain.catalogue import Catalogue
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.binding import AttribLink, Binder, BindPlan
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.states import PROPOSED, NodeRoleState

AttribSources = Mapping[str, int]
"""The noderole that each attrib is taken from, by the name of the attrib."""


@dataclass(frozen=True)
class Relinked:
    """A bound noderole that has other parents, or takes attribs from other noderoles, than before."""

    id: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    links: tuple[AttribLink, ...]
    """All links that it has from now on."""
    nodes: frozenset[int]
    """The nodes of the noderoles that come, or no longer come, before it: what depends on it there gets other
    inputs."""
    because: str

    def with_ids(self, ids: Mapping[int, int]) -> "Relinked":
        """Return the same with real ids in place of placeholders."""
        gained = tuple(ids.get(id, id) for id in self.gained)
        links = tuple(replace(link, parent=ids.get(link.parent, link.parent)) for link in self.links)
        return replace(self, gained=gained, links=links)


@dataclass(frozen=True)
class UpgradePlan:
    """The changes that make the graph fit the catalogue as it is now."""

    bind_plan: BindPlan
    relinked: tuple[Relinked, ...] = ()


def is_outdated(catalogue: Catalogue, noderole: NodeRole, parents: Collection[NodeRole], links: AttribSources) -> bool:
    """Return whether the parents or attrib links of a noderole do not fit its role any more.

    It lacks a parent that its role needs, has one that it does not need, or takes attribs from others than it should.
    """
    needs = catalogue.needed_roles(noderole.role)
    if any(not _parents_for(catalogue, noderole, need, parents) for need in needs):
        return True
    if any(not _is_needed(catalogue, noderole, parent) for parent in parents):
        return True
    owners = _owners(catalogue, noderole.role)
    return owners.keys() != links.keys() or any(
        links[want] not in {parent.id for parent in _parents_for(catalogue, noderole, owner, parents)}
        for want, owner in owners.items()
    )


def wiring(catalogue: Catalogue, role: str) -> object:
    """Return everything that decides which parents a noderole of this role has.

    If it is the same before and after an import, no noderole of the role can be outdated.
    """
    needs = catalogue.needed_roles(role)
    return (
        needs,
        [(catalogue.providers(need), catalogue.is_implicit(need)) for need in needs],
        _owners(catalogue, role),
    )


def plan_upgrade(
    graph: Graph,
    catalogue: Catalogue,
    deployment_id: int,
    requests: Iterable[tuple[int, str]],
    outdated: Mapping[int, AttribSources],
    *,
    state: NodeRoleState = PROPOSED,
    known: Mapping[tuple[int, str], int] | None = None,
) -> UpgradePlan:
    """Bind each (node, role) as `bind` does, then give the `outdated` noderoles of the deployment their parents.

    `graph` is used up: it is as it would be afterwards. It holds all noderoles that depend on the outdated ones.
    """
    upgrader = _Upgrader(graph, catalogue, deployment_id, state, known or {})
    # A node that moved into a deployment below keeps the roles bound to it here; the roles that these need are bound
    # here, too.
    upgrader.staying = {graph.noderoles[id].node_id for id in outdated}
    for node_id, role in requests:
        upgrader.plan.bound.append(upgrader.bind(node_id, role))
    new_parents = {id: upgrader.bind_missing_parents(id) for id in sorted(outdated)}
    relinked = upgrader.relink(new_parents, outdated)
    return UpgradePlan(upgrader.finish(), tuple(relinked))


def _parents_for(catalogue: Catalogue, noderole: NodeRole, need: str, parents: Iterable[NodeRole]) -> list[NodeRole]:
    """Return the parents of the needed role, or of one that provides it, in the order of their rank.

    An implicit role must be on the noderole's own node.
    """
    implicit = catalogue.is_implicit(need)
    matching = [
        parent
        for parent in parents
        if (parent.role == need or need in catalogue.role(parent.role).provides)
        and (not implicit or parent.node_id == noderole.node_id)
    ]
    return sorted(matching, key=lambda parent: parent.rank)


def _is_needed(catalogue: Catalogue, noderole: NodeRole, parent: NodeRole) -> bool:
    return any(_parents_for(catalogue, noderole, need, [parent]) for need in catalogue.needed_roles(noderole.role))


def _owners(catalogue: Catalogue, name: str) -> dict[str, str]:
    """Return the role that owns each attrib that a role takes from a parent, by the name of the attrib."""
    role = catalogue.role(name)
    wanted = ((want, catalogue.attribs[want].role) for want in role.wants if want in catalogue.attribs)
    return {want: owner for want, owner in wanted if owner and owner != name and owner not in role.provides}


class _Upgrader(Binder):
    """A binder that also changes the parents of noderoles that are bound already."""

    def bind_missing_parents(self, id: int) -> dict[str, NodeRole]:
        """Return a parent for each need that no parent of the noderole satisfies; bind it if there is none yet."""
        noderole = self.graph.noderoles[id]
        role = self.catalogue.role(noderole.role)
        new_parents: dict[str, NodeRole] = {}
        for need in self.catalogue.needed_roles(role.name):
            if not _parents_for(self.catalogue, noderole, need, self._parents(id)):
                parent = self._find_parent(noderole.node_id, need)
                if parent is None:
                    parent_id = self.bind(*self._location_of_missing(noderole.node_id, role, need))
                    parent = self.graph.noderoles[parent_id]
                new_parents[need] = parent
        return new_parents

    def relink(
        self, new_parents: Mapping[int, Mapping[str, NodeRole]], links: Mapping[int, AttribSources]
    ) -> list[Relinked]:
        """Link each noderole to its new parents, and unlink those that it does not need any more.

        This comes once all is bound: a cluster may have grown meanwhile.
        """
        lost = {id: [parent.id for parent in self._parents(id) if not self._needs(id, parent)] for id in new_parents}
        gained = {id: self._gained(id, by_need) for id, by_need in new_parents.items()}
        nodes = {id: self._nodes_above(lost[id]) for id in new_parents}
        adopted = set(self.plan.edges)
        for id, parents in lost.items():
            for parent in parents:
                self.graph.unlink(parent, id)
        dropped = {(parent, id) for id, parents in lost.items() for parent in parents}
        self.plan.edges = [edge for edge in self.plan.edges if edge not in dropped]
        for id, parents in gained.items():
            for parent in parents:
                self._check_no_circle(parent, id)
                self.graph.link(parent, id)
        self._check_lineages(new_parents)
        relinked = []
        for id in new_parents:
            dropped_parents = [parent for parent in lost[id] if (parent, id) not in adopted]
            relinked.append(
                Relinked(
                    id,
                    gained=tuple(gained[id]),
                    lost=tuple(dropped_parents),
                    links=tuple(self._links(id, new_parents[id], links[id])),
                    nodes=frozenset(nodes[id] | self._nodes_above(gained[id])),
                    because=self._because(gained[id], dropped_parents),
                )
            )
        return relinked

    def _parents(self, id: int) -> list[NodeRole]:
        return [self.graph.noderoles[parent] for parent in self.graph.parents(id)]

    def _needs(self, id: int, parent: NodeRole) -> bool:
        return _is_needed(self.catalogue, self.graph.noderoles[id], parent)

    def _gained(self, id: int, new_parents: Mapping[str, NodeRole]) -> list[int]:
        """Return the new parents, with the other members of clusters, that the noderole does not have yet."""
        parents = dict.fromkeys(peer for parent in new_parents.values() for peer in self._with_peers(parent))
        return [parent for parent in parents if parent not in self.graph.parents(id)]

    def _nodes_above(self, parents: Collection[int]) -> set[int]:
        return {self.graph.noderoles[id].node_id for id in {*parents, *self.graph.ancestors(parents)}}

    def _check_no_circle(self, parent: int, id: int) -> None:
        if parent == id or id in self.graph.ancestors([parent]):
            raise Conflict(
                Rule.CYCLE,
                f"{self.graph.title(id)} would now have to stand on {self.graph.title(parent)}, which stands on it "
                f"itself. Bind another role that answers for what {self.graph.noderoles[id].role} needs, or unbind "
                "one of the two.",
            )

    def _check_lineages(self, ids: Collection[int]) -> None:
        self.lineages.clear()
        for id in sorted({*ids, *self.graph.descendants(ids)}):
            self._check_lineage(self.graph.noderoles[id].role, self.graph.parents(id), self.graph.title(id))

    def _links(self, id: int, new_parents: Mapping[str, NodeRole], before: AttribSources) -> list[AttribLink]:
        """Return the noderole's attrib links; one that it had before stays if it is to a parent that still fits."""
        noderole = self.graph.noderoles[id]
        links = []
        for want, owner in _owners(self.catalogue, noderole.role).items():
            parents = [parent.id for parent in _parents_for(self.catalogue, noderole, owner, self._parents(id))]
            first = self._with_peers(new_parents[owner])[0] if owner in new_parents else parents[0]
            links.append(AttribLink(id, want, before[want] if before.get(want) in parents else first))
        return links

    def _because(self, gained: Collection[int], lost: Collection[int]) -> str:
        if not gained and not lost:
            return "takes attribs from others"
        parts = [f"{how} {self._titles(ids)}" for how, ids in (("now on", gained), ("no longer on", lost)) if ids]
        return f"stands {', '.join(parts)}"

    def _titles(self, ids: Collection[int]) -> str:
        named = " and ".join(self.graph.title(id) for id in list(ids)[:3])
        return f"{named} and {len(ids) - 3} more" if len(ids) > 3 else named
