"""Whether barclamps fit together: what the import of all of them would refuse, and more that ours must keep to."""

from collections import Counter
from collections.abc import Sequence

from rackwright.domain.barclamps.barclamp_file import find_clash
from rackwright.domain.catalogue import Barclamp, Catalogue, find_cycle


def check_fit(barclamps: Sequence[Barclamp]) -> None:
    """Every name is declared once, no roles and no parents are in a circle, and no attribs in each other's place."""
    names = Counter(("barclamp", barclamp.name) for barclamp in barclamps)
    for barclamp in barclamps:
        for kind in ("roles", "jigs", "hammers", "attribs"):
            names.update((kind, thing.name) for thing in getattr(barclamp, kind))
    assert [name for name, times in names.items() if times > 1] == []
    assert find_cycle({barclamp.name: [barclamp.parent] if barclamp.parent else [] for barclamp in barclamps}) is None
    catalogue = Catalogue.of(barclamps)
    catalogue.check()
    trees: list[set[str | None]] = [{None}]
    trees += [{role.name, *role.provides} for role in catalogue.roles.values() if role.provides]
    for owners in trees:
        assert find_clash([attrib for attrib in catalogue.attribs.values() if attrib.role in owners]) is None
