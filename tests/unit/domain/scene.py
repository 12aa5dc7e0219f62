"""Small scenes for tests of the domain, in words: roles, deployments, nodes, and noderoles as `role@node`."""

from collections.abc import Iterable

from rackwright.domain.catalogue import Attrib, Catalogue, Flag, Jig, Role
from rackwright.domain.graph.binding import PLACEHOLDER, BindPlan, bind
from rackwright.domain.graph.noderole_graph import Deployment, Graph, GraphNode, NodeRole
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState

JIGS = {
    "hand": Jig("hand", "test", "noop"),
    "off": Jig("off", "test", "noop", active=False),
    "tool": Jig("tool", "test", "noop", client_role="client"),
}


def role(line: str) -> Role:
    """`web requires=db,cache flags=cluster provides=site`"""
    name, *words = line.split()
    said = {key: tuple(values.split(",")) for key, values in (word.split("=") for word in words)}
    return Role(
        name=name,
        barclamp="test",
        jig=said.get("jig", ("hand",))[0],
        requires=said.get("requires", ()),
        attaches=said.get("attaches", ()),
        wants=said.get("wants", ()),
        provides=said.get("provides", ()),
        conflicts=said.get("conflicts", ()),
        flags=frozenset(Flag(flag) for flag in said.get("flags", ())),
    )


def catalogue(*lines: str, attribs: Iterable[Attrib] = ()) -> Catalogue:
    roles = [role(line) for line in lines]
    return Catalogue(
        roles={one.name: one for one in roles}, jigs=JIGS, attribs={attrib.name: attrib for attrib in attribs}
    )


class Scene:
    """A graph that binding, removal and plans are tried on."""

    def __init__(
        self,
        *roles: str,
        nodes: str = "n1 n2 n3",
        deployments: str = "d",
        attribs: Iterable[Attrib] = (),
    ) -> None:
        """`deployments` in a line from the root, each below the one before; `node:deployment!` is an admin node."""
        self.catalogue = catalogue(*roles, attribs=attribs)
        names = ["system", *deployments.split()]
        self.deployments = {name: number for number, name in enumerate(names, 1)}
        self.nodes: dict[str, int] = {}
        listed = [
            Deployment(number, name, number - 1 or None, self._node(f"{name}-phantom"))
            for name, number in self.deployments.items()
        ]
        places = [
            GraphNode(self.nodes[f"{one.name}-phantom"], f"{one.name}-phantom", one.id, system=True) for one in listed
        ]
        for word in nodes.split():
            name, _, home = word.rstrip("!").partition(":")
            places.append(
                GraphNode(self._node(name), name, self.deployments[home or "system"], admin=word.endswith("!"))
            )
        self.graph = Graph(nodes=places, deployments=listed)
        self.serial = 0

    def _node(self, name: str) -> int:
        return self.nodes.setdefault(name, len(self.nodes) + 1)

    def bind(self, *bindings: str, into: str = "d") -> BindPlan:
        """Propose `role@node` bindings; what they made gets the next ids."""
        plan = bind(self.graph, self.catalogue, self.deployments[into], [self._place(one) for one in bindings])
        self.graph = self._renumbered({one.id for one in plan.created})
        return plan

    def _renumbered(self, created: set[int]) -> Graph:
        ids = {id: id for id in self.graph.noderoles}
        for id in sorted(created):
            assert id >= PLACEHOLDER
            self.serial += 1
            ids[id] = self.serial
        return self._rebuilt(ids, {})

    def _rebuilt(self, ids: dict[int, int], states: dict[int, NodeRoleState], doomed: Iterable[int] = ()) -> Graph:
        noderoles = [
            NodeRole(
                ids[one.id], one.node_id, one.role, one.deployment_id, states.get(one.id, one.state), one.cohort,
                one.doomed or one.id in set(doomed),
            )
            for one in self.graph.noderoles.values()
        ]  # fmt: skip
        edges = [(ids[parent], ids[child]) for child in self.graph.noderoles for parent in self.graph.parents(child)]
        return Graph(self.graph.nodes.values(), self.graph.deployments.values(), noderoles, edges)

    def become(self, state: NodeRoleState, *names: str) -> None:
        """Put these (all, if none is named) into a state."""
        chosen = [self.id(name) for name in names] or list(self.graph.noderoles)
        same = {id: id for id in self.graph.noderoles}
        self.graph = self._rebuilt(same, dict.fromkeys(chosen, state))

    def commit(self) -> None:
        self.become(ACTIVE, *(self.name(one.id) for one in self.graph.noderoles.values() if one.state is PROPOSED))

    def doom(self, name: str) -> None:
        self.graph = self._rebuilt({id: id for id in self.graph.noderoles}, {}, [self.id(name)])

    def _place(self, name: str) -> tuple[int, str]:
        role, node = name.split("@")
        return self.nodes[node], role

    def id(self, name: str) -> int:
        node, role = self._place(name)
        found = self.graph.noderole_at(node, role)
        assert found is not None, f"{name} is not bound"
        return found.id

    def name(self, id: int) -> str:
        noderole = self.graph.noderoles[id]
        return f"{noderole.role}@{self.graph.node_name(noderole.node_id)}"

    def names(self, ids: Iterable[int]) -> set[str]:
        return {self.name(id) for id in ids}

    def bound(self) -> set[str]:
        return self.names(self.graph.noderoles)

    def parents(self, name: str) -> set[str]:
        return self.names(self.graph.parents(self.id(name)))

    def cohort(self, name: str) -> int:
        return self.graph.noderoles[self.id(name)].cohort
