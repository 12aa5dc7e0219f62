"""What is free of a range, as intervals: taking the lowest address or a certain one, and giving one back.

Each is a handful of look-ups in one index, whatever the size of the range. The caller holds the lock of the network.
"""

from collections.abc import Iterable
from ipaddress import ip_address

from rackwright.domain.networks.networks import Address, Range
from rackwright.store.db.session import Session


async def take_lowest(session: Session, range_id: int) -> Address | None:
    """The lowest free address, taken; None if the range is full."""
    row = await session.row(
        # By the address itself: plain `first` would be the text of it.
        "SELECT host(first) AS first FROM range_gaps WHERE range_id = :id ORDER BY range_gaps.first LIMIT 1",
        id=range_id,
    )
    if row is None:
        return None
    address = ip_address(row.first)
    taken = await take(session, range_id, address)
    assert taken, "the first address of a gap is free"
    return address


async def take(session: Session, range_id: int, address: Address) -> bool:
    """Take just this address; False if it is not free."""
    gap = await _gap_at(session, range_id, address)
    if gap is None:
        return False
    first, last = gap
    await _drop(session, range_id, first)
    if first < address:  # type: ignore[operator]  # both are of the family of the range
        await _add(session, range_id, first, address - 1)
    if address < last:  # type: ignore[operator]
        await _add(session, range_id, address + 1, last)
    return True


async def give_back(session: Session, range_id: int, address: Address) -> None:
    """The address is free again; gaps on both sides become one with it."""
    first = last = address
    below = await _gap_at(session, range_id, address - 1)
    if below is not None:
        first = below[0]
        await _drop(session, range_id, first)
    above = await _gap_at(session, range_id, address + 1)
    if above is not None:
        last = above[1]
        await _drop(session, range_id, above[0])
    await _add(session, range_id, first, last)


async def lay_out(session: Session, range_id: int, one: Range, taken: Iterable[Address]) -> None:
    """Work the gaps of a range out anew, after it was made or changed."""
    await session.run("DELETE FROM range_gaps WHERE range_id = :id", id=range_id)
    start = one.first
    for address in sorted(int(address) for address in taken if address in one):
        if int(start) < address:
            await _add(session, range_id, start, type(start)(address - 1))
        if address == int(one.last):
            return
        start = type(start)(address + 1)
    await _add(session, range_id, start, one.last)


async def _gap_at(session: Session, range_id: int, address: Address) -> tuple[Address, Address] | None:
    row = await session.row(
        "SELECT host(first) AS first, host(last) AS last FROM range_gaps"
        " WHERE range_id = :id AND first <= CAST(:address AS inet) ORDER BY range_gaps.first DESC LIMIT 1",
        id=range_id,
        address=str(address),
    )
    if row is None or int(ip_address(row.last)) < int(address):
        return None
    return ip_address(row.first), ip_address(row.last)


async def _add(session: Session, range_id: int, first: Address, last: Address) -> None:
    await session.run(
        "INSERT INTO range_gaps (range_id, first, last) VALUES (:id, CAST(:first AS inet), CAST(:last AS inet))",
        id=range_id,
        first=str(first),
        last=str(last),
    )


async def _drop(session: Session, range_id: int, first: Address) -> None:
    await session.run(
        "DELETE FROM range_gaps WHERE range_id = :id AND first = CAST(:first AS inet)", id=range_id, first=str(first)
    )
