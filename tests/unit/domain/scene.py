"""Small graphs for tests of the domain, written as text: roles, deployments, nodes, and noderoles as `role@node`."""

from collections.abc import Iterable
from dataclasses import replace

from rackwright.domain.catalogue import Attrib, Catalogue, Flag, Jig, Role
from rackwright.domain.graph.binding import PLACEHOLDER, BindPlan, bind
from rackwright.domain.graph.noderole_graph import Deployment, Graph, GraphNode
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState

JIGS = {
    "hand": Jig("hand", "test", "noop"),
    "off": Jig("off", "test", "noop", active=False),
    "tool": Jig("tool", "test", "noop", client_role="client"),
}


def role(line: str) -> Role:
    """Return the role of a line such as `web requires=db,cache flags=cluster provides=site`."""
    name, *words = line.split()
    options = {key: tuple(values.split(",")) for key, values in (word.split("=") for word in words)}
    return Role(
        name=name,
        barclamp="test",
        jig=options.get("jig", ("hand",))[0],
        requires=options.get("requires", ()),
        attaches=options.get("attaches", ()),
        wants=options.get("wants", ()),
        provides=options.get("provides", ()),
        conflicts=options.get("conflicts", ()),
        flags=frozenset(Flag(flag) for flag in options.get("flags", ())),
    )


def catalogue(*lines: str, attribs: Iterable[Attrib] = ()) -> Catalogue:
    roles = [role(line) for line in lines]
    return Catalogue(
        roles={role.name: role for role in roles}, jigs=JIGS, attribs={attrib.name: attrib for attrib in attribs}
    )


class Scene:
    """A graph and a catalogue, for tests of binding, removal and plans."""

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
        graph_nodes = [
            GraphNode(
                self.nodes[f"{deployment.name}-phantom"], f"{deployment.name}-phantom", deployment.id, system=True
            )
            for deployment in listed
        ]
        for word in nodes.split():
            name, _, home = word.rstrip("!").partition(":")
            graph_nodes.append(
                GraphNode(self._node(name), name, self.deployments[home or "system"], admin=word.endswith("!"))
            )
        self.graph = Graph(nodes=graph_nodes, deployments=listed)
        self.serial = 0

    def _node(self, name: str) -> int:
        return self.nodes.setdefault(name, len(self.nodes) + 1)

    def bind(self, *bindings: str, into: str = "d") -> BindPlan:
        """Propose `role@node` bindings; the noderoles that they create get the next ids."""
        requests = [self._location(binding) for binding in bindings]
        plan = bind(self.graph, self.catalogue, self.deployments[into], requests)
        self.graph = self._renumbered({noderole.id for noderole in plan.created})
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
            replace(
                noderole,
                id=ids[noderole.id],
                state=states.get(noderole.id, noderole.state),
                doomed=noderole.doomed or noderole.id in set(doomed),
            )
            for noderole in self.graph.noderoles.values()
        ]
        edges = [(ids[parent], ids[child]) for child in self.graph.noderoles for parent in self.graph.parents(child)]
        return Graph(self.graph.nodes.values(), self.graph.deployments.values(), noderoles, edges)

    def become(self, state: NodeRoleState, *names: str) -> None:
        """Put these noderoles (all, if none is named) into a state."""
        chosen = [self.id(name) for name in names] or list(self.graph.noderoles)
        same = {id: id for id in self.graph.noderoles}
        self.graph = self._rebuilt(same, dict.fromkeys(chosen, state))

    def commit(self) -> None:
        proposed = [noderole.id for noderole in self.graph.noderoles.values() if noderole.state is PROPOSED]
        self.become(ACTIVE, *map(self.name, proposed))

    def doom(self, name: str) -> None:
        self.graph = self._rebuilt({id: id for id in self.graph.noderoles}, {}, [self.id(name)])

    def _location(self, name: str) -> tuple[int, str]:
        role, node = name.split("@")
        return self.nodes[node], role

    def id(self, name: str) -> int:
        node, role = self._location(name)
        noderole = self.graph.noderole_at(node, role)
        assert noderole is not None, f"{name} is not bound"
        return noderole.id

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
