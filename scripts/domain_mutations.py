"""The rules of the domain that `scripts/mutate-domain` takes away, one at a time: what is replaced, and by what."""

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    # states: rows of the table
    Mutation(
        "states: commit does not move", "states.py", "Transition(_from(PROPOSED), None)", "Transition(_from(), None)"
    ),
    Mutation(
        "states: parents met do not unblock",
        "states.py",
        "Transition(_from(BLOCKED), TODO)",
        "Transition(_from(), TODO)",
    ),
    Mutation(
        "states: a lost parent does not block",
        "states.py",
        "Transition(_from(TODO), BLOCKED)",
        "Transition(_from(), BLOCKED)",
    ),
    Mutation(
        "states: success is no success",
        "states.py",
        "Transition(_from(TRANSITION), ACTIVE)",
        "Transition(_from(TRANSITION), TODO)",
    ),
    Mutation(
        "states: failure is no failure",
        "states.py",
        "Transition(_from(TRANSITION), ERROR, forgets=True)",
        "Transition(_from(TRANSITION), TODO, forgets=True)",
    ),
    Mutation("states: a failure keeps the last success", "states.py", "ERROR, forgets=True)", "ERROR)"),
    Mutation(
        "states: a stale run counts",
        "states.py",
        "Trigger.STALE: Transition(_from(TRANSITION), None)",
        "Trigger.STALE: Transition(_from(TRANSITION), ACTIVE)",
    ),
    Mutation(
        "states: a lost run is not forced",
        "states.py",
        "Transition(_from(TRANSITION), None, forces=True)",
        "Transition(_from(TRANSITION), None)",
    ),
    Mutation(
        "states: unchanged inputs run", "states.py", "Transition(_from(TODO), ACTIVE)", "Transition(_from(), ACTIVE)"
    ),
    Mutation(
        "states: new inputs do not move",
        "states.py",
        "Trigger.DIRTY: Transition(_from(ACTIVE)",
        "Trigger.DIRTY: Transition(_from()",
    ),
    Mutation(
        "states: new inputs wipe",
        "states.py",
        "Trigger.DIRTY: Transition(_from(ACTIVE), None, spares_destructive=_from(ACTIVE))",
        "Trigger.DIRTY: Transition(_from(ACTIVE), None)",
    ),
    Mutation(
        "states: a circle goes on", "states.py", "Transition(_from(TODO, BLOCKED), ERROR)", "Transition(_from(), ERROR)"
    ),
    Mutation(
        "states: a change leaves errors",
        "states.py",
        "Trigger.CHANGE: Transition(_from(ACTIVE, ERROR, TODO, BLOCKED)",
        "Trigger.CHANGE: Transition(_from(ACTIVE, TODO, BLOCKED)",
    ),
    Mutation(
        "states: a change wipes",
        "states.py",
        "Trigger.CHANGE: Transition(_from(ACTIVE, ERROR, TODO, BLOCKED), None, spares_destructive=_from(ACTIVE))",
        "Trigger.CHANGE: Transition(_from(ACTIVE, ERROR, TODO, BLOCKED), None)",
    ),
    Mutation(
        "states: a changed input leaves errors",
        "states.py",
        "        _from(ACTIVE, ERROR),\n        None,",
        "        _from(ACTIVE),\n        None,",
    ),
    Mutation(
        "states: a changed input repeats a failed install",
        "states.py",
        "        None,\n        spares_destructive=_from(ACTIVE, ERROR),\n    ),\n    Trigger.RETRY",
        "        None,\n        spares_destructive=_from(ACTIVE),\n    ),\n    Trigger.RETRY",
    ),
    Mutation(
        "states: a retry of what is active",
        "states.py",
        "Trigger.RETRY: Transition(_from(ERROR, ACTIVE)",
        "Trigger.RETRY: Transition(_from(ERROR)",
    ),
    Mutation(
        "states: a retry wipes",
        "states.py",
        "Trigger.RETRY: Transition(_from(ERROR, ACTIVE), TODO, spares_destructive=_from(ACTIVE), ",
        "Trigger.RETRY: Transition(_from(ERROR, ACTIVE), TODO, ",
    ),
    Mutation(
        "states: a retry is not forced",
        "states.py",
        "TODO, spares_destructive=_from(ACTIVE), forces=True)",
        "TODO, spares_destructive=_from(ACTIVE))",
    ),
    Mutation(
        "states: a reinstall is spared",
        "states.py",
        "Trigger.REINSTALL: Transition(_from(ERROR, ACTIVE), TODO, ",
        "Trigger.REINSTALL: Transition(_from(ERROR, ACTIVE), TODO, spares_destructive=_from(ACTIVE), ",
    ),
    Mutation(
        "states: a reboot leaves what runs",
        "states.py",
        "_from(ACTIVE, ERROR, TODO, BLOCKED, TRANSITION)",
        "_from(ACTIVE, ERROR, TODO, BLOCKED)",
    ),
    Mutation("states: a reboot wipes", "states.py", "        spares_destructive=_from(ACTIVE, ERROR),\n", ""),
    Mutation(
        "states: a reboot does not force",
        "states.py",
        "spares_destructive=_from(ACTIVE, ERROR),\n        forces=True,\n",
        "spares_destructive=_from(ACTIVE, ERROR),\n",
    ),
    Mutation(
        "states: a regrouped cluster blocks nobody",
        "states.py",
        "Trigger.REGROUP: Transition(_from(ACTIVE)",
        "Trigger.REGROUP: Transition(_from()",
    ),
    Mutation(
        "states: a regrouped cluster wipes", "states.py", "BLOCKED, spares_destructive=_from(ACTIVE))", "BLOCKED)"
    ),
    Mutation("states: by its parents", "states.py", "return BLOCKED if unmet else TODO", "return TODO"),
    Mutation(
        "states: nothing is spared",
        "states.py",
        "if destructive and state in transition.spares_destructive:",
        "if False:",
    ),
    Mutation(
        "states: the best is shown",
        "states.py",
        "return max(states, default=ACTIVE)",
        "return min(states, default=ACTIVE)",
    ),
    # catalogue: what roles say of each other
    Mutation(
        "catalogue: no client role",
        "catalogue.py",
        "if jig and jig.client_role and jig.client_role != name",
        "if False",
    ),
    Mutation("catalogue: no attaches", "catalogue.py", "*attached.get(name, ()), ", ""),
    Mutation("catalogue: no owners of wanted attribs", "catalogue.py", ", *others]", "]"),
    Mutation(
        "catalogue: a provider needs what it provides",
        "catalogue.py",
        "if owner and owner not in role.provides]",
        "if owner]",
    ),
    Mutation("catalogue: conflicts one way", "catalogue.py", "partners.setdefault(second, set()).add(first)", "pass"),
    Mutation("catalogue: circles imported", "catalogue.py", "        if path:\n", "        if False:\n"),
    Mutation(
        "catalogue: a provider has not the attribs",
        "catalogue.py",
        "owners = {name, *self.roles[name].provides} if",
        "owners = {name} if",
    ),
    # binding: where
    Mutation(
        "binding: proposed elsewhere is used",
        "graph/noderole_graph.py",
        "(noderole.state is not PROPOSED or noderole.deployment_id == proposal)",
        "True",
    ),
    Mutation("binding: removed is used", "graph/noderole_graph.py", "return not noderole.doomed and", "return"),
    Mutation(
        "binding: removed is bound again", "graph/binding.py", "        if noderole.doomed:\n", "        if False:\n"
    ),
    Mutation(
        "binding: services stay on machines",
        "graph/binding.py",
        "self.deployment.phantom_id if role.has(Flag.SERVICE) else node_id",
        "node_id",
    ),
    Mutation(
        "binding: own node not first",
        "graph/binding.py",
        "        if on_node is not None:\n            return on_node\n",
        "",
    ),
    Mutation(
        "binding: no provider on the node",
        "graph/binding.py",
        "providers = (self.graph.noderole_at(node_id, provider) for provider in self.catalogue.providers(need))",
        "providers = ()",
    ),
    Mutation(
        "binding: implicit found elsewhere",
        "graph/binding.py",
        "if self.catalogue.is_implicit(need):",
        "if False:",
    ),
    Mutation(
        "binding: no provider in the deployment",
        "graph/binding.py",
        "for provider in self.catalogue.providers(need)\n                )",
        "for provider in ()\n                )",
    ),
    Mutation(
        "binding: no deployments above",
        "graph/binding.py",
        "for deployment_id in self.path:",
        "for deployment_id in self.path[:1]:",
    ),
    Mutation(
        "binding: any of several",
        "graph/noderole_graph.py",
        "return (self.cohort, self.id)",
        "return (-self.cohort, self.id)",
    ),
    Mutation(
        "binding: the youngest of several",
        "graph/noderole_graph.py",
        "return (self.cohort, self.id)",
        "return (self.cohort, -self.id)",
    ),
    # binding: clusters, cohorts, links
    Mutation(
        "binding: one member as parent",
        "graph/binding.py",
        "if not self.catalogue.role(noderole.role).has(Flag.CLUSTER):",
        "if True:",
    ),
    Mutation("binding: no adoption", "graph/binding.py", "        if peers:\n", "        if False:\n"),
    Mutation("binding: adoption by all", "graph/binding.py", "if role.has(Flag.CLUSTER) else []", "if True else []"),
    Mutation("binding: cohort zero", "graph/binding.py", "cohort = 1 + max(", "cohort = 0 * max("),
    Mutation("binding: cohorts not pushed", "graph/binding.py", "        self._push_cohorts(id)\n", ""),
    Mutation("binding: cohorts pushed one step", "graph/binding.py", "                    stack.append(child)\n", ""),
    Mutation("binding: no links", "graph/binding.py", "                self.plan.links.append(", "                ("),
    # binding: refusals
    Mutation("binding: circle of roles", "graph/binding.py", "        if missing in stack:\n", "        if False:\n"),
    Mutation(
        "binding: bound where proposed elsewhere",
        "graph/binding.py",
        "if not is_visible(noderole, self.deployment.id):",
        "if False:",
    ),
    Mutation("binding: abstract requirement", "graph/binding.py", "if needed.has(Flag.ABSTRACT):", "if False:"),
    Mutation("binding: ordinary on phantom by need", "graph/binding.py", "if on_phantom and not", "if False and not"),
    Mutation(
        "binding: abstract role", "graph/binding.py", "        if role.has(Flag.ABSTRACT):\n", "        if False:\n"
    ),
    Mutation("binding: inactive jig", "graph/binding.py", "if jig is None or not jig.active:", "if jig is None:"),
    Mutation(
        "binding: ordinary on phantom",
        "graph/binding.py",
        "if node.system and not (role.has(Flag.SERVICE) or role.has(Flag.IMPLICIT)):",
        "if False:",
    ),
    Mutation(
        "binding: another's phantom",
        "graph/binding.py",
        "if node.system and node.id != self.deployment.phantom_id:",
        "if False:",
    ),
    Mutation(
        "binding: node elsewhere",
        "graph/binding.py",
        "at_home = node.deployment_id in self.path or",
        "at_home = True or",
    ),
    Mutation(
        "binding: destructive on admin",
        "graph/binding.py",
        "if role.has(Flag.DESTRUCTIVE) and node.admin:",
        "if False:",
    ),
    Mutation("binding: provides on one node", "graph/binding.py", "if neighbour.role in stand_ins:", "if False:"),
    Mutation("binding: conflicts", "graph/binding.py", "if neighbour.role in rivals:", "if False:"),
    Mutation(
        "binding: place checked once",
        "graph/binding.py",
        "        self._check_location(node_id, role)\n        parents: dict",
        "        parents: dict",
    ),
    Mutation(
        "binding: lineage of parents",
        "graph/binding.py",
        "        self._check_lineage(role.name, parent_ids, title)\n",
        "",
    ),
    Mutation(
        "binding: lineage direct only",
        "graph/binding.py",
        "self.lineages[top] = own.union(*(self.lineages[parent] for parent in parents))",
        "self.lineages[top] = own",
    ),
    Mutation(
        "binding: lineage of adopted", "graph/binding.py", "if gained & self.catalogue.stand_ins(role):", "if False:"
    ),
    Mutation(
        "binding: cycle by adoption", "graph/binding.py", "if below & {id, *self.graph.ancestors([id])}:", "if False:"
    ),
    Mutation(
        "binding: unknown attrib",
        "graph/binding.py",
        "            if attrib is None:\n                raise",
        "            if attrib is None:\n                continue\n                raise",
    ),
    # removal
    Mutation("removal: orphans", "graph/removal.py", "        if orphans:\n", "        if False:\n"),
    Mutation(
        "removal: other deployments go along",
        "graph/removal.py",
        " and dependant.deployment_id == leaving.deployment_id",
        "",
    ),
    Mutation("removal: other nodes go along", "graph/removal.py", "dependant.node_id == leaving.node_id and ", ""),
    Mutation(
        "removal: proposed holds",
        "graph/removal.py",
        "return same_location or dependant.state is PROPOSED",
        "return same_location",
    ),
    Mutation("removal: direct children only", "graph/removal.py", "                stack.append(child)\n", ""),
    Mutation("removal: no cluster", "graph/removal.py", "if role is None or not role.has(Flag.CLUSTER):", "if True:"),
    Mutation(
        "removal: anything is a cluster",
        "graph/removal.py",
        "if role is None or not role.has(Flag.CLUSTER):",
        "if False:",
    ),
    Mutation(
        "removal: peers of any role",
        "graph/removal.py",
        "same_cluster = peer.role == member.role and",
        "same_cluster =",
    ),
    Mutation(
        "removal: proposed peers hold",
        "graph/removal.py",
        "peer.state is not PROPOSED or graph.noderoles[child].state is PROPOSED",
        "True",
    ),
    Mutation("removal: leaving peers hold", "graph/removal.py", " and other not in leaving:", ":"),
    Mutation("removal: doomed peers hold", "graph/removal.py", " and not peer.doomed", ""),
    Mutation(
        "removal: each by itself",
        "graph/removal.py",
        "removed = _all_removed(graph, catalogue, requested)",
        "removed = requested.union(*(_dependants(graph, catalogue, id, requested) for id in requested))",
    ),
    # snapshots
    Mutation(
        "snapshots: removal unchecked", "graph/snapshots.py", "    _check_bound_stay(graph, proposal, removed)\n", ""
    ),
    Mutation(
        "snapshots: clusters not touched",
        "graph/snapshots.py",
        "if catalogue.role(member.role).has(Flag.CLUSTER)",
        "if False",
    ),
    Mutation(
        "snapshots: proposed members count", "graph/snapshots.py", " if graph.noderoles[id].state is not PROPOSED)", ")"
    ),
    Mutation("snapshots: changed data", "graph/snapshots.py", "if id in proposal.changed:", "if False:"),
    Mutation(
        "snapshots: changed roles", "graph/snapshots.py", "and noderole.role in proposal.changed_roles:", "and False:"
    ),
    Mutation(
        "snapshots: changed roles anywhere",
        "graph/snapshots.py",
        "elif noderole.deployment_id == proposal.deployment_id and",
        "elif",
    ),
    Mutation(
        "snapshots: peers",
        "graph/snapshots.py",
        "elif (noderole.deployment_id, noderole.role) in touched:",
        "elif False:",
    ),
    Mutation(
        "snapshots: takers",
        "graph/snapshots.py",
        "takers = [(id, source) for source, ids in proposal.takers.items() for id in ids]",
        "takers = list[tuple[int, int]]()",
    ),
    Mutation(
        "snapshots: below members",
        "graph/snapshots.py",
        "[*_below_members(graph, proposal, removed, touched), *takers]",
        "takers",
    ),
    Mutation(
        "snapshots: held back",
        "graph/snapshots.py",
        "                if child.state is ACTIVE and not _may_never_rerun(catalogue, child):\n",
        "                if False:\n",
    ),
    Mutation(
        "snapshots: destructive again",
        "graph/snapshots.py",
        "return noderole.state is ACTIVE and catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)",
        "return False",
    ),
    Mutation(
        "snapshots: wiped",
        "graph/snapshots.py",
        "if catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)\n",
        "if False\n",
    ),
    Mutation(
        "snapshots: moved",
        "graph/snapshots.py",
        "if graph.nodes[id].deployment_id != proposal.deployment_id",
        "if False",
    ),
    Mutation("snapshots: digest without revision", "graph/snapshots.py", " {proposal.revision}", ""),
    Mutation(
        "snapshots: digest without lines",
        "graph/snapshots.py",
        "json.dumps([(line.id, line.because) for line in lines]).encode()",
        'b""',
    ),
    Mutation("snapshots: digest without nodes", "graph/snapshots.py", " {[*moved]} {[*wiped]}", ""),
    Mutation("snapshots: held is not shown", "graph/snapshots.py", "    if held:\n", "    if False:\n"),
    # attributes
    Mutation("attributes: earlier wins", "attributes.py", "for layer in layers:", "for layer in reversed(layers):"),
    Mutation(
        "attributes: shallow",
        "attributes.py",
        "merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value",
        "value",
    ),
    Mutation(
        "attributes: wall over user",
        "attributes.py",
        "self.committed, self.wall, self.sysdata, self.user)",
        "self.committed, self.sysdata, self.user, self.wall)",
    ),
    Mutation(
        "attributes: template over committed",
        "attributes.py",
        "return merge(self.template, self.deployment_wall, self.committed, self.wall,",
        "return merge(self.deployment_wall, self.committed, self.template, self.wall,",
    ),
    Mutation("attributes: hash with wall", "attributes.py", "own.without_wall(), around)", "own.merged(), around)"),
    Mutation(
        "attributes: discovery over hint",
        "attributes.py",
        "merge(around.discovery, around.hint)",
        "merge(around.hint, around.discovery)",
    ),
    Mutation("attributes: no default", "attributes.py", "if value is MISSING and attrib.has_default:", "if False:"),
    Mutation(
        "attributes: no node attribs",
        "attributes.py",
        "for attrib in wanted_attribs if attrib.role is None]",
        "for attrib in wanted_attribs if False]",
    ),
    Mutation("attributes: no links", "attributes.py", "for name, source in around.links)", "for name, source in ())"),
    Mutation(
        "attributes: no ancestors", "attributes.py", "        *(source.values for source in around.ancestors),\n", ""
    ),
    Mutation(
        "attributes: no own defaults",
        "attributes.py",
        "        *_at_their_paths((attrib, {}) for attrib in catalogue.attribs_of(role)),\n",
        "",
    ),
    Mutation("attributes: own data below", "attributes.py", "        own,\n        extras,\n", "        extras,\n"),
    Mutation("attributes: no members", "attributes.py", "    if around.members:\n", "    if False:\n"),
    Mutation("attributes: no hints", "attributes.py", '{"hints": _values_of_attribs(around.hint, node_attribs), ', "{"),
    Mutation("attributes: hash by order", "attributes.py", "sort_keys=True, ", ""),
    Mutation(
        "attributes: read-only is not",
        "attributes.py",
        "    if attrib.schema is None:\n        raise",
        "    if attrib.schema is None:\n        return\n        raise",
    ),
]
