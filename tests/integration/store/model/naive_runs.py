"""The naive model's runs: what may run, and what becomes of it. It imports nothing of the product."""

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
    Refused,
    atomic,
)
from tests.integration.store.model.naive_inputs import staged
from tests.integration.store.model.naive_upgrades import NaiveUpgrades


class NaiveRuns(NaiveUpgrades):
    def runnable(self) -> set[Key]:
        return {
            key
            for key, one in self.noderoles.items()
            if self.state(key) == TODO and not self.deployments[one.deployment].held
            if self.nodes[one.node].alive and self.nodes[one.node].available
            if self.nodes[one.node].system or not self._busy(one.node)
        }

    def _busy(self, node: str) -> bool:
        return any(one.node == node and one.state == TRANSITION for one in self.noderoles.values())

    def unchanged(self, key: Key) -> bool:
        """Its inputs are those of its last run, which succeeded, and nobody forced it."""
        one = self.noderoles[key]
        return one.succeeded_with is not None and not one.forced and one.succeeded_with == staged(self, key, wall=False)

    def claim(self, key: Key) -> None:
        one = self.noderoles[key]
        one.not_told = set()
        if self.unchanged(key):
            one.state = ACTIVE
        else:
            one.state, one.stale, one.running_with = TRANSITION, False, staged(self, key, wall=False)

    def settle(self, key: Key, ok: bool, wall: dict[str, Json]) -> None:
        one = self.noderoles[key]
        if one.doomed:
            self.erase({key})
        elif not ok:
            one.state, one.succeeded_with = ERROR, None
        else:
            before, one.wall = one.wall, wall
            one.succeeded_with, one.forced = one.running_with, False
            one.state = WAITING if one.stale and not self.destroys(key) else ACTIVE
            if before != wall:
                self._dirty_because_of(key, self.takers(key))
            self._write_findings(key, wall)

    def _write_findings(self, writer: Key, wall: dict[str, Json]) -> None:
        """Facts of nodes that a run returned are the node's; those who want one run again, but none it stands on."""
        node = self.nodes[writer[0]]
        facts = {name: one.map[0] for name, one in self.attribs.items() if one.role is None}  # they lie at the top
        found = {place: wall[place] for place in facts.values() if place in wall}
        new = {name for name, place in facts.items() if place in found and node.discovery.get(place) != found[place]}
        if node.system or not new:
            return
        node.discovery = node.discovery | found
        here = [one for one in self.noderoles.values() if one.node == node.name and one.state != PROPOSED]
        wanting = {one.key for one in here if new & {*self.roles[one.role].wants}}
        spared = {writer, *self.ancestors(writer)}
        self._dirty_because_of(writer, wanting - spared)
        for key in wanting & spared:
            self.noderoles[key].not_told |= {facts[name] for name in new}

    def _dirty_because_of(self, source: Key, keys: Collection[Key]) -> None:
        """The sixth time that one cause makes a noderole run again, it is taken out of the circle."""
        for key in keys:
            one = self.noderoles[key]
            again = one.state == TRANSITION or (one.state == ACTIVE and not self.destroys(key))
            self.dirty({key})
            if again:
                one.dirtied = (source, one.dirtied[1] + 1 if one.dirtied[0] == source else 1)
                if one.dirtied[1] > 5 and one.state == WAITING:
                    one.state = ERROR

    @atomic
    def retry(self, key: Key, reinstall: bool) -> None:
        one = self.noderoles[key]
        if self.spared(key) and not reinstall:
            raise Refused("destructive-already-ran")
        if one.state not in (ERROR, ACTIVE) or not self.parents_active(key):
            raise Refused("not-retryable")
        one.state, one.forced = WAITING, True

    def has_new_inputs(self, key: Key) -> bool:
        """Whether its last run was handed anything else than it would be now, but for what it was not told of."""
        one = self.noderoles[key]
        return _but_for(one.succeeded_with, one.not_told) != _but_for(staged(self, key, wall=False), one.not_told)


def _but_for(data: dict[str, Json], places: set[str]) -> dict[str, Json]:
    return {place: value for place, value in data.items() if place not in places}
