"""The replay window: remembers which messages of each sender were seen already. Pure and bounded.

A sender numbers its messages through one boot session, and its sessions through its life. An earlier session, a number
seen before, or one older than the window, is refused. Three integers are remembered of each sender.
"""

from rackwright.mesh.membership.messages import Message

WINDOW = 1024
_MASK = (1 << WINDOW) - 1


class ReplayGuard:
    """The windows of up to `limit` senders."""

    __slots__ = ("_limit", "_seen")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: dict[str, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def accept(self, message: Message) -> bool:
        """Return whether a message is new, and remember it if so."""
        sender, session, sequence = message.sender, message.session, message.sequence
        window = self._seen.get(sender)
        if window is None:
            self._make_room()
            self._seen[sender] = (session, sequence, 1)
            return True
        last_session, highest, mask = window
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
        """Forget the oldest sender at the limit.

        Senders are members, as their certificates prove, so only a cluster beyond its configured size gets here.
        """
        if len(self._seen) >= self._limit:
            del self._seen[next(iter(self._seen))]
