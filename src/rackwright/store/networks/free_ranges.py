"""The free addresses of a range, as intervals (gaps): taking the lowest or a certain one, and returning one.

Each is a handful of look-ups in one index, whatever the size of the range. The caller holds the lock of the network.
"""

from collections.abc import Iterable
from ipaddress import ip_address

from rackwright.domain.networks.networks import Address, Range
from rackwright.store.db.session import Session


async def take_lowest_address(session: Session, range_id: int) -> Address | None:
    """Take the lowest free address and return it; None if the range is full."""
    row = await session.row(
        # Ordered by the address itself: plain `first` would be its text.
        "SELECT host(first) AS first FROM range_gaps WHERE range_id = :id ORDER BY range_gaps.first LIMIT 1",
        id=range_id,
    )
    if row is None:
        return None
    address = ip_address(row.first)
    taken = await take_address(session, range_id, address)
    assert taken, "the first address of a gap is free"
    return address


async def take_address(session: Session, range_id: int, address: Address) -> bool:
    """Take this address; return False if it is not free."""
    gap = await _find_gap(session, range_id, address)
    if gap is None:
        return False
    first, last = gap
    await _delete_gap(session, range_id, first)
    if first < address:  # type: ignore[operator]  # both are of the family of the range
        await _insert_gap(session, range_id, first, address - 1)
    if address < last:  # type: ignore[operator]
        await _insert_gap(session, range_id, address + 1, last)
    return True


async def return_address(session: Session, range_id: int, address: Address) -> None:
    """Make the address free again; gaps on both sides are joined with it."""
    first = last = address
    below = await _find_gap(session, range_id, address - 1)
    if below is not None:
        first = below[0]
        await _delete_gap(session, range_id, first)
    above = await _find_gap(session, range_id, address + 1)
    if above is not None:
        last = above[1]
        await _delete_gap(session, range_id, above[0])
    await _insert_gap(session, range_id, first, last)


async def rebuild_gaps(session: Session, range_id: int, range: Range, taken: Iterable[Address]) -> None:
    """Compute the gaps of a range again, after it was created or changed."""
    await session.run("DELETE FROM range_gaps WHERE range_id = :id", id=range_id)
    start = range.first
    for address in sorted(int(address) for address in taken if address in range):
        if int(start) < address:
            await _insert_gap(session, range_id, start, type(start)(address - 1))
        if address == int(range.last):
            return
        start = type(start)(address + 1)
    await _insert_gap(session, range_id, start, range.last)


async def _find_gap(session: Session, range_id: int, address: Address) -> tuple[Address, Address] | None:
    row = await session.row(
        "SELECT host(first) AS first, host(last) AS last FROM range_gaps"
        " WHERE range_id = :id AND first <= CAST(:address AS inet) ORDER BY range_gaps.first DESC LIMIT 1",
        id=range_id,
        address=str(address),
    )
    if row is None or int(ip_address(row.last)) < int(address):
        return None
    return ip_address(row.first), ip_address(row.last)


async def _insert_gap(session: Session, range_id: int, first: Address, last: Address) -> None:
    await session.run(
        "INSERT INTO range_gaps (range_id, first, last) VALUES (:id, CAST(:first AS inet), CAST(:last AS inet))",
        id=range_id,
        first=str(first),
        last=str(last),
    )


async def _delete_gap(session: Session, range_id: int, first: Address) -> None:
    await session.run(
        "DELETE FROM range_gaps WHERE range_id = :id AND first = CAST(:first AS inet)", id=range_id, first=str(first)
    )
