"""Giving bound noderoles the parents that their roles need after a barclamp changed. Pure, like binding.

A parent that still answers a need stays; only what is missing is looked for, by the rules of binding; what nobody
needs any more is let go.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from rackwright.domain.catalogue import Catalogue
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.binding import Binder, BindPlan, Link
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.states import PROPOSED, NodeRoleState

Links = Mapping[str, int]
"""By the attrib, the noderole that it is taken from."""


@dataclass(frozen=True)
class Relinked:
    """A bound noderole that stands on others, or takes attribs from others, than before."""

    id: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    links: tuple[Link, ...]
    """All that it has from now on."""
    nodes: frozenset[int]
    """Where the noderoles are that come, or no longer come, before it: what stands on it there has other inputs."""
    because: str

    def with_ids(self, ids: Mapping[int, int]) -> "Relinked":
        """Return the same with real ids in place of placeholders."""
        gained = tuple(ids.get(id, id) for id in self.gained)
        links = tuple(replace(link, parent=ids.get(link.parent, link.parent)) for link in self.links)
        return replace(self, gained=gained, links=links)


@dataclass(frozen=True)
class Upgrade:
    """What has to change so that all stands as the catalogue says now."""

    bound: BindPlan
    relinked: tuple[Relinked, ...] = ()


def is_outdated(catalogue: Catalogue, noderole: NodeRole, parents: Collection[NodeRole], links: Links) -> bool:
    """Return whether a noderole lacks a parent that its role needs, has one that it does not need, or takes its
    attribs from others than it should."""
    needs = catalogue.needed_roles(noderole.role)
    if any(not _answering(catalogue, noderole, need, parents) for need in needs):
        return True
    if any(not _is_needed(catalogue, noderole, parent) for parent in parents):
        return True
    owners = _owners(catalogue, noderole.role)
    return owners.keys() != links.keys() or any(
        links[want] not in {parent.id for parent in _answering(catalogue, noderole, owner, parents)}
        for want, owner in owners.items()
    )


def wiring(catalogue: Catalogue, role: str) -> object:
    """Return all that decides which parents a noderole of this role has. If it is the same, none can be outdated."""
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
    outdated: Mapping[int, Links],
    *,
    state: NodeRoleState = PROPOSED,
    known: Mapping[tuple[int, str], int] | None = None,
) -> Upgrade:
    """Bind each (node, role) as `bind` does, then give the `outdated` noderoles of the deployment their parents.

    `graph` is used up: it is as it would be afterwards. It holds all that stands on the outdated ones.
    """
    upgrader = _Upgrader(graph, catalogue, deployment_id, state, known or {})
    # One that moved on into a deployment below keeps what is bound to it here, and what that needs comes here too.
    upgrader.staying = {graph.noderoles[id].node_id for id in outdated}
    for node_id, role in requests:
        upgrader.plan.bound.append(upgrader.bind(node_id, role))
    found = {id: upgrader.find_missing(id) for id in sorted(outdated)}
    relinked = upgrader.relink(found, outdated)
    return Upgrade(upgrader.finish(), tuple(relinked))


def _answering(catalogue: Catalogue, noderole: NodeRole, need: str, parents: Iterable[NodeRole]) -> list[NodeRole]:
    """The parents that are what is needed, or provide it; the first one first. An implicit role must be on the node."""
    implicit = catalogue.is_implicit(need)
    found = [
        parent
        for parent in parents
        if (parent.role == need or need in catalogue.role(parent.role).provides)
        and (not implicit or parent.node_id == noderole.node_id)
    ]
    return sorted(found, key=lambda parent: parent.rank)


def _is_needed(catalogue: Catalogue, noderole: NodeRole, parent: NodeRole) -> bool:
    return any(_answering(catalogue, noderole, need, [parent]) for need in catalogue.needed_roles(noderole.role))


def _owners(catalogue: Catalogue, name: str) -> dict[str, str]:
    """By the attrib, the role that answers for it, of those attribs that are taken from a parent."""
    role = catalogue.role(name)
    wanted = ((want, catalogue.attribs[want].role) for want in role.wants if want in catalogue.attribs)
    return {want: owner for want, owner in wanted if owner and owner != name and owner not in role.provides}


class _Upgrader(Binder):
    def find_missing(self, id: int) -> dict[str, NodeRole]:
        """For each need that no parent of the noderole answers, what is to answer it; bound now if there is none."""
        noderole = self.graph.noderoles[id]
        role = self.catalogue.role(noderole.role)
        found: dict[str, NodeRole] = {}
        for need in self.catalogue.needed_roles(role.name):
            if not _answering(self.catalogue, noderole, need, self._parents(id)):
                there = self._find(noderole.node_id, need)
                if there is None:
                    bound = self.bind(*self._missing(noderole.node_id, role, need))
                    there = self.graph.noderoles[bound]
                found[need] = there
        return found

    def relink(self, found: Mapping[int, Mapping[str, NodeRole]], links: Mapping[int, Links]) -> list[Relinked]:
        """Put each under what was found for it, once all is bound: a cluster may have grown meanwhile."""
        lost = {id: [p.id for p in self._parents(id) if not self._needs(id, p)] for id in found}
        gained = {id: self._gained(id, needs) for id, needs in found.items()}
        nodes = {id: self._nodes_above(lost[id]) for id in found}
        adopted = set(self.plan.edges)
        for id, parents in lost.items():
            for parent in parents:
                self.graph.unlink(parent, id)
        dropped = {(parent, id) for id, parents in lost.items() for parent in parents}
        self.plan.edges = [edge for edge in self.plan.edges if edge not in dropped]
        for id, parents in gained.items():
            for parent in parents:
                self._check_before(parent, id)
                self.graph.link(parent, id)
        self._check_lineages(found)
        relinked = []
        for id in found:
            left = [parent for parent in lost[id] if (parent, id) not in adopted]
            all_links = self._links(id, found[id], links[id])
            where = nodes[id] | self._nodes_above(gained[id])
            because = self._because(gained[id], left)
            relinked.append(Relinked(id, tuple(gained[id]), tuple(left), tuple(all_links), frozenset(where), because))
        return relinked

    def _parents(self, id: int) -> list[NodeRole]:
        return [self.graph.noderoles[parent] for parent in self.graph.parents(id)]

    def _needs(self, id: int, parent: NodeRole) -> bool:
        return _is_needed(self.catalogue, self.graph.noderoles[id], parent)

    def _gained(self, id: int, found: Mapping[str, NodeRole]) -> list[int]:
        parents = dict.fromkeys(parent for there in found.values() for parent in self._with_peers(there))
        return [parent for parent in parents if parent not in self.graph.parents(id)]

    def _nodes_above(self, parents: Collection[int]) -> set[int]:
        return {self.graph.noderoles[id].node_id for id in {*parents, *self.graph.ancestors(parents)}}

    def _check_before(self, parent: int, id: int) -> None:
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

    def _links(self, id: int, found: Mapping[str, NodeRole], before: Links) -> list[Link]:
        noderole = self.graph.noderoles[id]
        links = []
        for want, owner in _owners(self.catalogue, noderole.role).items():
            parents = [parent.id for parent in _answering(self.catalogue, noderole, owner, self._parents(id))]
            first = self._with_peers(found[owner])[0] if owner in found else parents[0]
            links.append(Link(id, want, before[want] if before.get(want) in parents else first))
        return links

    def _because(self, gained: Collection[int], lost: Collection[int]) -> str:
        if not gained and not lost:
            return "takes attribs from others"
        parts = [f"{how} {self._titles(ids)}" for how, ids in (("now on", gained), ("no longer on", lost)) if ids]
        return f"stands {', '.join(parts)}"

    def _titles(self, ids: Collection[int]) -> str:
        named = " and ".join(self.graph.title(id) for id in list(ids)[:3])
        return f"{named} and {len(ids) - 3} more" if len(ids) > 3 else named
