"""How many addresses of a network's ranges are allocated, and the gaps that are free."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rackwright.domain.networks.networks import Address, Range
from rackwright.store.db.session import Session
from rackwright.store.networks.network_rows import NetworkRecord

MAX_GAPS = 100
"""The number of gaps of a range that are read, the lowest first: more are not needed to find a free address."""


@dataclass(frozen=True)
class Gap:
    first: Address
    last: Address

    @property
    def size(self) -> int:
        return int(self.last) - int(self.first) + 1


@dataclass(frozen=True)
class RangeUsage:
    range: Range
    taken: int
    gaps: Sequence[Gap]
    """The lowest gaps, at most `MAX_GAPS`."""
    more_gaps: int

    @property
    def free(self) -> int:
        return self.range.size - self.taken


async def read_usage(session: Session, record: NetworkRecord) -> list[RangeUsage]:
    """Return the usage of each range, in the order of the network's ranges."""
    ids = [*record.range_ids.values()]
    count_rows = await session.rows(
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
        most=MAX_GAPS,
    )
    counts = {row.range_id: row.n for row in count_rows}
    usages = []
    for range in record.network.ranges:
        id = record.range_ids[range.name]
        gap_rows = [row for row in rows if row.range_id == id]
        gaps = [Gap(ip_address(row.first), ip_address(row.last)) for row in gap_rows]
        usages.append(RangeUsage(range, counts.get(id, 0), gaps, gap_rows[0].n - len(gaps) if gap_rows else 0))
    return usages
