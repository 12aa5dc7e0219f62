"""The naive model's runs: what may run, and what its result does. It imports nothing of the product."""

from collections.abc import Collection

from tests.integration.store.model.naive_graph import (
    ACTIVE,
    ERROR,
    PROPOSED,
    TODO,
    TRANSITION,
    WAITING,
    Json,
    Key,
    RefusedByModel,
    atomic,
)
from tests.integration.store.model.naive_inputs import staged
from tests.integration.store.model.naive_upgrades import NaiveUpgrades


class NaiveRuns(NaiveUpgrades):
    def runnable(self) -> set[Key]:
        return {
            key
            for key, noderole in self.noderoles.items()
            if self.state(key) == TODO and not self.deployments[noderole.deployment].held
            if self.nodes[noderole.node].alive and self.nodes[noderole.node].available
            if self.nodes[noderole.node].system or not self._busy(noderole.node)
        }

    def _busy(self, node: str) -> bool:
        return any(noderole.node == node and noderole.state == TRANSITION for noderole in self.noderoles.values())

    def unchanged(self, key: Key) -> bool:
        """Return whether its inputs are those of its last run, which succeeded, and nobody forced it."""
        noderole = self.noderoles[key]
        return (
            noderole.succeeded_with is not None
            and not noderole.forced
            and noderole.succeeded_with == staged(self, key, wall=False)
        )

    def claim(self, key: Key) -> None:
        noderole = self.noderoles[key]
        noderole.not_told = set()
        if self.unchanged(key):
            noderole.state = ACTIVE
        else:
            noderole.state, noderole.stale, noderole.running_with = TRANSITION, False, staged(self, key, wall=False)

    def settle(self, key: Key, ok: bool, wall: dict[str, Json]) -> None:
        noderole = self.noderoles[key]
        if noderole.doomed:
            self.erase({key})
        elif not ok:
            noderole.state, noderole.succeeded_with = ERROR, None
        else:
            before, noderole.wall = noderole.wall, wall
            noderole.succeeded_with, noderole.forced = noderole.running_with, False
            noderole.state = WAITING if noderole.stale and not self.destroys(key) else ACTIVE
            if before != wall:
                self._dirty_because_of(key, self.takers(key))
            self._write_findings(key, wall)

    def _write_findings(self, writer: Key, wall: dict[str, Json]) -> None:
        """Write facts that a run returned to the node; what wants one runs again, but nothing that it stands on."""
        node = self.nodes[writer[0]]
        facts = {
            name: attrib.map[0] for name, attrib in self.attribs.items() if attrib.role is None
        }  # they lie at the top
        findings = {fact_key: wall[fact_key] for fact_key in facts.values() if fact_key in wall}
        new = {
            name
            for name, fact_key in facts.items()
            if fact_key in findings and node.discovery.get(fact_key) != findings[fact_key]
        }
        if node.system or not new:
            return
        node.discovery = node.discovery | findings
        here = [
            noderole
            for noderole in self.noderoles.values()
            if noderole.node == node.name and noderole.state != PROPOSED
        ]
        wanting = {noderole.key for noderole in here if new & {*self.roles[noderole.role].wants}}
        spared = {writer, *self.ancestors(writer)}
        self._dirty_because_of(writer, wanting - spared)
        for key in wanting & spared:
            self.noderoles[key].not_told |= {facts[name] for name in new}

    def _dirty_because_of(self, source: Key, keys: Collection[Key]) -> None:
        """Note changed inputs; the sixth time that one cause makes a noderole run again, it goes to ERROR."""
        for key in keys:
            noderole = self.noderoles[key]
            again = noderole.state == TRANSITION or (noderole.state == ACTIVE and not self.destroys(key))
            self.dirty({key})
            if again:
                noderole.dirtied = (source, noderole.dirtied[1] + 1 if noderole.dirtied[0] == source else 1)
                if noderole.dirtied[1] > 5 and noderole.state == WAITING:
                    noderole.state = ERROR

    @atomic
    def retry(self, key: Key, reinstall: bool) -> None:
        noderole = self.noderoles[key]
        if self.spared(key) and not reinstall:
            raise RefusedByModel("destructive-already-ran")
        if noderole.state not in (ERROR, ACTIVE) or not self.parents_active(key):
            raise RefusedByModel("not-retryable")
        noderole.state, noderole.forced = WAITING, True

    def has_new_inputs(self, key: Key) -> bool:
        """Return whether its last run had other inputs than it would have now.

        Facts that it does not run again for are left out.
        """
        noderole = self.noderoles[key]
        return _but_for(noderole.succeeded_with, noderole.not_told) != _but_for(
            staged(self, key, wall=False), noderole.not_told
        )


def _but_for(data: dict[str, Json], keys: set[str]) -> dict[str, Json]:
    return {key: value for key, value in data.items() if key not in keys}
