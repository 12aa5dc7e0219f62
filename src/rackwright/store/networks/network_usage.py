"""How much of a network's ranges is given out, and where the gaps are."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rackwright.domain.networks.networks import Address, Range
from rackwright.store.db.session import Session
from rackwright.store.networks.network_rows import NetworkRecord

MOST_GAPS = 100
"""Of one range, the lowest: who looks for a free address needs no more."""


@dataclass(frozen=True)
class Gap:
    first: Address
    last: Address

    @property
    def size(self) -> int:
        return int(self.last) - int(self.first) + 1


@dataclass(frozen=True)
class Usage:
    range: Range
    taken: int
    gaps: Sequence[Gap]
    """The lowest of them."""
    more_gaps: int

    @property
    def free(self) -> int:
        return self.range.size - self.taken


async def usage_of(session: Session, record: NetworkRecord) -> list[Usage]:
    """In the order of the network's ranges."""
    ids = [*record.range_ids.values()]
    taken = await session.rows(
        "SELECT range_id, count(*) AS n FROM allocations WHERE range_id = ANY (:ids) GROUP BY range_id", ids=ids
    )
    rows = await session.rows(
        """
        SELECT range_id, host(first) AS first, host(last) AS last, n FROM (
            SELECT g.*, row_number() OVER (PARTITION BY range_id ORDER BY g.first) AS place,
                   count(*) OVER (PARTITION BY range_id) AS n
            FROM range_gaps g WHERE range_id = ANY (:ids)
        ) lowest WHERE place <= :most ORDER BY range_id, place
        """,
        ids=ids,
        most=MOST_GAPS,
    )
    counts = {row.range_id: row.n for row in taken}
    found = []
    for one in record.network.ranges:
        id = record.range_ids[one.name]
        of_it = [row for row in rows if row.range_id == id]
        gaps = [Gap(ip_address(row.first), ip_address(row.last)) for row in of_it]
        found.append(Usage(one, counts.get(id, 0), gaps, of_it[0].n - len(gaps) if of_it else 0))
    return found
