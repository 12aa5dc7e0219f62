"""The replay window: which messages of which sender were seen already. Pure and bounded.

A sender numbers its messages through one boot session, and its sessions through its life. An earlier session, a number
seen before, or one so old that nobody remembers, is refused. What is remembered of a sender is three integers.
"""

from rackwright.mesh.membership.messages import Message

WINDOW = 1024
_MASK = (1 << WINDOW) - 1


class ReplayGuard:
    __slots__ = ("_limit", "_seen")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: dict[str, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def accept(self, message: Message) -> bool:
        """Whether this message is new. Remembers it if so."""
        sender, session, sequence = message.sender, message.session, message.sequence
        known = self._seen.get(sender)
        if known is None:
            self._make_room()
            self._seen[sender] = (session, sequence, 1)
            return True
        last_session, highest, mask = known
        if session != last_session:
            if session < last_session:
                return False
            self._seen[sender] = (session, sequence, 1)
            return True
        ahead = sequence - highest
        if ahead > 0:
            self._seen[sender] = (session, sequence, ((mask << ahead) | 1) & _MASK if ahead < WINDOW else 1)
            return True
        if ahead <= -WINDOW or mask >> -ahead & 1:
            return False
        self._seen[sender] = (session, highest, mask | 1 << -ahead)
        return True

    def forget(self, sender: str) -> None:
        self._seen.pop(sender, None)

    def _make_room(self) -> None:
        """Senders are members (their certificate says so), so this is met only by a cluster beyond its configured
        size.
        """
        if len(self._seen) >= self._limit:
            del self._seen[next(iter(self._seen))]
