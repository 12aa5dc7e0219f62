"""The rules of the model, written simply and slowly, to compare the store with.

`test_model_stateful.py` does the same to this and to the store, and compares. It imports nothing of the product. A
noderole that is to run is stored as WAITING; whether that shows as TODO or BLOCKED is computed from its parents each
time, as is every cohort.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass

from tests.integration.store.model.naive_graph import (
    ACTIVE,
    ERROR,
    PROPOSED,
    STRUCTURE,
    TRANSITION,
    WAITING,
    Attrib,
    Deployment,
    Json,
    Key,
    Node,
    NodeRole,
    RefusedByModel,
    Role,
    Snapshot,
    atomic,
)
from tests.integration.store.model.naive_inputs import address_of
from tests.integration.store.model.naive_runs import NaiveRuns
from tests.integration.store.model.naive_upgrades import Relink


@dataclass
class Plan:
    created: set[Key]
    rerun: set[Key]
    held_back: set[Key]
    removed: set[Key]
    relinked: dict[Key, tuple[set[Key], set[Key], dict[str, Key]]]
    moved: set[str]
    wiped: set[str]
    edits: int


class World(NaiveRuns):
    def __init__(self) -> None:
        super().__init__()
        self._add_deployment("system", None)
        self.deployments["system"].snapshots.append(Snapshot("head"))

    # --- proposals

    def require_proposal(self, deployment: str) -> Snapshot:
        if deployment == "system":
            raise RefusedByModel("system-deployment")
        proposal = self.deployments[deployment].proposal()
        if proposal is None:
            raise RefusedByModel("nothing-proposed")
        return proposal

    def proposed(self, deployment: str) -> list[NodeRole]:
        proposed = [
            noderole
            for noderole in self.noderoles.values()
            if noderole.deployment == deployment and noderole.state == PROPOSED
        ]
        return sorted(proposed, key=lambda noderole: noderole.born)

    @atomic
    def propose(self, deployment: str) -> None:
        if deployment == "system":
            raise RefusedByModel("system-deployment")
        home = self.deployments[deployment]
        if home.proposal() is not None:
            raise RefusedByModel("proposal-exists")
        head = home.head() or Snapshot("none")
        bindings = {key: data for key, data in head.bindings.items() if self._still_bound(key)}
        roles = {name: data for name, data in head.roles.items() if name in self.roles}
        home.snapshots.append(Snapshot("proposed", copy.deepcopy(roles), copy.deepcopy(bindings)))

    def _still_bound(self, key: Key) -> bool:
        return key in self.noderoles and not self.noderoles[key].doomed

    @atomic
    def recall(self, deployment: str) -> None:
        if deployment != "system" and self.deployments[deployment].head() is None:
            raise RefusedByModel("nothing-committed")
        self.propose(deployment)
        self.deployments[deployment].held = True

    @atomic
    def bind(self, deployment: str, requests: list[Key]) -> None:
        proposal = self.require_proposal(deployment)
        self._check_known(requests)
        before = set(self.noderoles)
        for node, role in requests:
            self._bind(deployment, node, role, PROPOSED, {})
        self._hide_from_others(deployment)
        created = set(self.noderoles) - before
        requested = {(self.deployments[deployment].phantom if self.flag(r, "service") else n, r) for n, r in requests}
        self._intend(deployment, proposal, created, requested)

    def _intend(self, deployment: str, proposal: Snapshot, created: set[Key], requested: set[Key]) -> None:
        proposal.edits += 1
        for key in created | requested:
            if self.noderoles[key].deployment == deployment:
                proposal.bindings.setdefault(key, copy.deepcopy(self.user_data(key)))
        for key in created:
            proposal.roles.setdefault(key[1], {})

    def _hide_from_others(self, deployment: str) -> set[tuple[Key, Key]]:
        """Take proposed members away from above all that is not in their own proposal, until they are committed."""
        own = {noderole.key for noderole in self.proposed(deployment)}
        hidden = {
            (parent, key)
            for key, noderole in self.noderoles.items()
            if key not in own
            for parent in noderole.parents & own
        }
        for parent, key in hidden:
            self.noderoles[key].parents.remove(parent)
        return hidden

    @atomic
    def unbind(self, deployment: str, keys: list[Key]) -> None:
        proposal = self.require_proposal(deployment)
        for key in keys:
            if key not in self.noderoles or self.noderoles[key].deployment != deployment:
                raise RefusedByModel("not-found")
        going = self.removal(keys)
        proposal.edits += 1
        for key in going:
            proposal.bindings.pop(key, None)
        self.erase({k for k in going if self.noderoles[k].state == PROPOSED and k in set(self._keys(deployment))})

    def _keys(self, deployment: str) -> list[Key]:
        return [noderole.key for noderole in self.noderoles.values() if noderole.deployment == deployment]

    @atomic
    def set_role_data(self, deployment: str, role: str, data: dict[str, Json]) -> None:
        proposal = self.require_proposal(deployment)
        if role not in proposal.roles:
            raise RefusedByModel("not-found")
        proposal.roles[role] = data
        proposal.edits += 1

    @atomic
    def set_binding_data(self, deployment: str, key: Key, data: dict[str, Json]) -> None:
        proposal = self.require_proposal(deployment)
        if key not in proposal.bindings:
            raise RefusedByModel("not-found")
        proposal.bindings[key] = data
        proposal.edits += 1

    @atomic
    def discard(self, deployment: str) -> None:
        proposal = self.require_proposal(deployment)
        self.erase({noderole.key for noderole in self.proposed(deployment)})
        self.deployments[deployment].snapshots.remove(proposal)
        self.deployments[deployment].held = False

    @atomic
    def rollback(self, deployment: str, number: int) -> Snapshot:
        """Propose what the snapshot with that number in the time line has, and return the proposal."""
        past = self.deployments[deployment].snapshots[number]
        self.propose(deployment)
        proposal = self.require_proposal(deployment)
        dropped = [key for key in proposal.bindings if key not in past.bindings and key in self.noderoles]
        if dropped:
            self.unbind(deployment, dropped)
        restorable = [key for key in past.bindings if key[0] in self.nodes and key[1] in self.roles]
        order = list(self.nodes), list(self.roles)
        self.bind(deployment, sorted(restorable, key=lambda key: (order[0].index(key[0]), order[1].index(key[1]))))
        for key in proposal.bindings.keys() & past.bindings.keys():
            proposal.bindings[key] = copy.deepcopy(past.bindings[key])
        bound = {key[1] for key in proposal.bindings}
        for role in [role for role in proposal.roles if role not in past.roles and role not in bound]:
            del proposal.roles[role]
        proposal.roles |= {role: copy.deepcopy(data) for role, data in past.roles.items() if role in self.roles}
        return proposal

    # --- committing

    @atomic
    def plan(self, deployment: str) -> Plan:
        proposal = self.require_proposal(deployment)
        _, relinks = self._bind_anew(deployment, proposal)
        return self._plan(deployment, proposal, relinks)

    def _bind_anew(self, deployment: str, proposal: Snapshot) -> tuple[set[tuple[Key, Key]], dict[Key, Relink]]:
        """Bind all that is proposed again, in the order it was; return the edges that only a commit makes.

        What is committed is bound again as well, if its role needs other parents now.
        """
        outdated = self.outdated(deployment, proposal.bindings)
        self.staying = {node for node, _ in outdated}
        known = {noderole.key: noderole.born for noderole in self.proposed(deployment)}
        positions = {key: (self.noderoles[key].parents, self.cohort(key)) for key in known}
        for key in known:
            del self.noderoles[key]
        before = set(self.noderoles)
        for node, role in known:
            self._bind(deployment, node, role, PROPOSED, known)
        relinks = self.find_relinks(deployment, outdated, PROPOSED)
        self.staying = set()
        created = set(self.noderoles) - before
        if positions != {key: (self.noderoles[key].parents, self.cohort(key)) for key in created}:
            self._intend(deployment, proposal, created - known.keys(), set())
        new_edges = self._hide_from_others(deployment)
        dropped = {(parent, key) for key, relink in relinks.items() for parent in relink.lost} & new_edges
        for parent, key in dropped:
            relinks[key].lost.remove(parent)
        return new_edges - dropped, relinks

    def _plan(self, deployment: str, proposal: Snapshot, relinks: dict[Key, Relink]) -> Plan:
        changed = self._changed(deployment, proposal)
        taking = {taker for key in changed for taker in self.takers(key)}
        before = {key: set(self.noderoles[key].parents) for key in relinks}
        self.apply_parents(relinks)
        plan = self._plan_standing(deployment, proposal, relinks, changed, taking)
        for key, parents in before.items():
            self.noderoles[key].parents = parents
        return plan

    def _plan_standing(
        self, deployment: str, proposal: Snapshot, relinks: dict[Key, Relink], changed: set[Key], taking: set[Key]
    ) -> Plan:
        """Return the plan, with all that the commit links again standing where it will."""
        created = {noderole.key for noderole in self.proposed(deployment)}
        committed = {key for key in self._keys(deployment) if self._still_bound(key)} - created
        gone = self.removal(committed - proposal.bindings.keys())
        if any(key in proposal.bindings and self.noderoles[key].deployment == deployment for key in gone):
            raise RefusedByModel("orphans-dependant")
        touched = self._touched(deployment, created | gone)
        members = {
            noderole.key for noderole in self.noderoles.values() if (noderole.deployment, noderole.role) in touched
        }
        again = changed | relinks.keys() | {key for key in members - created if self._still_bound(key)}
        taking |= self.below_relinked(relinks)
        for key in members & (created | gone):
            home = self.noderoles[key].deployment
            cluster = [
                member for member in members if member[1] == key[1] and self.noderoles[member].deployment == home
            ]
            taking |= {low for member in cluster for low in self.descendants(member) if low[0] == key[0]}
        again |= {taker for taker in taking if self.noderoles[taker].state == ACTIVE}
        rerun = {key for key in again - gone - created if not self.spared(key)}
        held_back = {
            child
            for member in members
            for child in self.children(member) - gone - created - rerun
            if self.noderoles[child].state == ACTIVE and not self.spared(child)
        }
        return Plan(
            created,
            rerun,
            held_back,
            gone,
            relinked={key: (relink.gained, relink.lost, relink.links) for key, relink in relinks.items()},
            moved={node for node, _ in created if self.nodes[node].deployment != deployment}
            - {node for node, _ in relinks},
            wiped={node for node, role in created | rerun if self.flag(role, "destructive")},
            edits=proposal.edits,
        )

    def _changed(self, deployment: str, proposal: Snapshot) -> set[Key]:
        committed = [key for key in self._keys(deployment) if self.noderoles[key].state != PROPOSED]
        own = {k for k in committed if k in proposal.bindings and proposal.bindings[k] != self.user_data(k)}
        roles = {role for role, data in proposal.roles.items() if data != self.role_data(deployment, role)}
        return own | {key for key in committed if key[1] in roles}

    def _touched(self, deployment: str, coming_or_going: Collection[Key]) -> set[tuple[str, str]]:
        """Return the clusters that gain or lose a member. A noderole proposed elsewhere was no member yet."""
        return {
            (self.noderoles[key].deployment, key[1])
            for key in coming_or_going
            if self.flag(key[1], "cluster")
            if self.noderoles[key].state != PROPOSED or self.noderoles[key].deployment == deployment
        }

    @atomic
    def commit(self, deployment: str, seen: Plan | None) -> Plan:
        proposal = self.require_proposal(deployment)
        adopted, relinks = self._bind_anew(deployment, proposal)
        plan = self._plan(deployment, proposal, relinks)
        if seen is not None and seen != plan:
            raise RefusedByModel("plan-changed")
        if seen is None and plan.wiped:
            raise RefusedByModel("digest-required")
        changed = self._changed(deployment, proposal) - plan.removed
        taking = {taker for key in changed for taker in self.takers(key)}
        for key in plan.created:
            self.noderoles[key].state = WAITING
        taking |= self.follow(relinks)
        for parent, child in adopted:
            self.noderoles[child].parents.add(parent)
        home = self.deployments[deployment]
        for old in home.snapshots:
            old.state = "archived"
        proposal.state = "head"
        home.held = False
        for node in plan.moved:
            self.nodes[node].deployment = deployment
        self._change(changed | relinks.keys())
        self.dirty(taking - plan.removed)
        self._regroup_and_remove(plan.created, plan.removed)
        return plan

    def _change(self, keys: Collection[Key]) -> None:
        for key in keys:
            noderole = self.noderoles[key]
            if noderole.state == TRANSITION:
                noderole.stale = True
            elif noderole.state != PROPOSED and not self.spared(key):
                noderole.state = WAITING

    def _regroup_and_remove(self, came: set[Key], going: set[Key]) -> None:
        members = {k for k in came | going if self.flag(k[1], "cluster") and self.noderoles[k].state != PROPOSED}
        peers = {peer for key in members for peer in self.peers(key)} - members
        children = {child for peer in peers for child in self.children(peer)} - going
        takers = {taker for key in members for taker in self.takers(key)} - going
        self._change(peers)
        self.dirty(takers)
        running = {key for key in going if self.noderoles[key].state == TRANSITION}
        for key in running:
            self.noderoles[key].doomed = True
        self.erase(going - running)
        self.dirty({child for child in children if not self.parents_active(child)} - running)

    # --- nodes and deployments

    def _add_deployment(self, name: str, parent: str | None) -> None:
        phantom = f"{name}.services.internal"
        self.nodes[phantom] = Node(phantom, name, system=True)
        self.deployments[name] = Deployment(name, parent, phantom)

    def create_deployment(self, name: str, parent: str) -> None:
        self._add_deployment(name, parent)
        self.deployments[name].snapshots.append(Snapshot("proposed"))

    @atomic
    def delete_deployment(self, name: str) -> None:
        home = self.deployments[name]
        if home.parent is None:
            raise RefusedByModel("system-deployment")
        if any(other.parent == name for other in self.deployments.values()):
            raise RefusedByModel("has-children")
        if any(self.noderoles[key].state == TRANSITION for key in self._keys(name)):
            raise RefusedByModel("busy")
        self.erase(self._keys(name))
        for node in self.nodes.values():
            if node.deployment == name and not node.system:
                node.deployment = home.parent
        del self.nodes[home.phantom], self.deployments[name]

    @atomic
    def create_node(self, name: str, admin: bool, alive: bool) -> None:
        self.nodes[name] = Node(name, "system", admin=admin, alive=alive)
        flag = "bootstrap" if admin else "discovery"
        before = set(self.noderoles)
        for role in sorted(role for role in self.roles if self.flag(role, flag)):
            self._bind("system", name, role, WAITING, {})
        self._regroup_and_remove(set(self.noderoles) - before, set())

    @atomic
    def delete_node(self, name: str) -> None:
        if self.nodes[name].admin and sum(node.admin for node in self.nodes.values()) == 1:
            raise RefusedByModel("last-admin-node")
        own_noderoles = [noderole for noderole in self.noderoles.values() if noderole.node == name]
        if any(noderole.state == TRANSITION for noderole in own_noderoles):
            raise RefusedByModel("busy")
        self._regroup_and_remove(set(), self.removal(noderole.key for noderole in own_noderoles))
        del self.nodes[name]

    @atomic
    def move_node(self, name: str, deployment: str) -> None:
        node = self.nodes[name]
        for noderole in self.noderoles.values():
            left_behind = noderole.state != PROPOSED or noderole.deployment == node.deployment
            if noderole.node == name and left_behind and noderole.deployment not in self.path(deployment):
                raise RefusedByModel("still-bound")
        node.deployment = deployment

    def set_node(self, name: str, changes: dict[str, Json]) -> None:
        node = self.nodes[name]
        address = address_of(node)
        changed = {field: value for field, value in changes.items() if getattr(node, field) != value}
        for field, value in changed.items():
            setattr(node, field, value)
        if changed.keys() & {"hint", "discovery"}:
            own = {noderole.key for noderole in self.noderoles.values() if noderole.node == name}
            members = {k for k in own if self.flag(k[1], "cluster") and self.noderoles[k].state != PROPOSED}
            new_address = address_of(node) != address
            self.dirty(own | {peer for key in members for peer in self.peers(key) if new_address})

    def boot(self, name: str) -> None:
        self.nodes[name].alive = True
        for noderole in [noderole for noderole in self.noderoles.values() if noderole.node == name]:
            if noderole.doomed:
                self.erase({noderole.key})
            elif noderole.state == TRANSITION and self.destroys(noderole.key):
                noderole.state, noderole.succeeded_with = ERROR, None
            elif noderole.state == ERROR and self.destroys(noderole.key):
                continue  # a failed install does not start again because its machine rebooted
            elif noderole.state != PROPOSED and not self.spared(noderole.key):
                noderole.state, noderole.forced = WAITING, True

    # --- barclamps

    @atomic
    def import_barclamp(self, roles: list[Role], attribs: list[Attrib], clients: dict[str, str | None]) -> None:
        old = copy.deepcopy(self)
        bound = {key[1] for key in self.noderoles}
        imported = {role.name for role in roles}
        listed = {
            name for d in self.deployments.values() for s in d.snapshots if s.state != "archived" for name in s.roles
        }
        if (bound | listed) & (self.roles.keys() - imported):
            raise RefusedByModel("still-bound")
        self.roles = {role.name: role for role in roles}
        self.attribs = {attrib.name: attrib for attrib in attribs}
        self.clients = clients
        if self.role_cycle():
            raise RefusedByModel("cycle")
        for name in bound:
            if (old.roles[name].flags ^ self.roles[name].flags) & STRUCTURE:
                raise RefusedByModel("still-bound")
        self.check_new_pairs(old)
        for key in self.noderoles:
            if self.own_values(key[1]) != old.own_values(key[1]):
                self.dirty({key} | self.takers(key))
        self._bind_bootstrap()
        self._upgrade_system()

    def _upgrade_system(self) -> None:
        before = set(self.noderoles)
        relinks = self.find_relinks("system", self.outdated("system", before), WAITING)
        self._regroup_and_remove(set(self.noderoles) - before, set())
        below = self.follow(relinks)
        self._change(relinks)
        self.dirty(below)

    def _bind_bootstrap(self) -> None:
        before = set(self.noderoles)
        for node in [node.name for node in self.nodes.values() if node.admin]:
            for role in sorted(role for role in self.roles if self.flag(role, "bootstrap")):
                if self.all_declared(role, set()):
                    self._bind("system", node, role, WAITING, {})
        self._regroup_and_remove(set(self.noderoles) - before, set())
