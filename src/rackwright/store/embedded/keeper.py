"""The keeper: a small process of its own that runs the embedded PostgreSQL for as long as any process uses it.

`server.py` starts this module as a program; it uses nothing but the standard library, so that it is up at once.
Every user (a Rackwright process) holds one connection to the keeper. The kernel closes that connection when the user
dies, however it dies, so the count of users is always true; when it falls to zero the keeper shuts PostgreSQL down and
ends. If the keeper itself is killed, the kernel tells PostgreSQL to shut down. `cluster.py` makes a cluster and starts
the server; `operating_user.py` chooses the user it runs as; by `server.py` a user finds the keeper.

Each message is one line of JSON. User to keeper: the order (first user only), and "leave". Keeper to user: "ready"
with the socket directory or "error" with a text, then the answer to leave: "bye", or "stopped" to the last one.
"""

import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path

from rackwright.store.embedded import cluster


class Keeper:
    """Keeps the server running while it has users. One thread, one selector."""

    def __init__(self, server: cluster.Server, control: socket.socket) -> None:
        self.server = server
        self.control = control
        self.users: set[socket.socket] = set()
        self.leavers: list[socket.socket] = []
        """Users that said that they leave, and were not answered yet."""
        self.selector = selectors.DefaultSelector()
        self.stop_requested = False

    def serve(self, first: socket.socket) -> list[socket.socket]:
        """Serve users as long as there are any. Return those to tell that the server has stopped."""
        wakeup_in, wakeup_out = socket.socketpair()
        wakeup_in.setblocking(False)
        wakeup_out.setblocking(False)
        signal.set_wakeup_fd(wakeup_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self.control.setblocking(False)
        self.selector.register(self.control, selectors.EVENT_READ)
        self.selector.register(wakeup_in, selectors.EVENT_READ)
        self._welcome(first)
        while self._is_needed():
            self._answer_leavers()
            for key, _ in self.selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self.control:
                    self._accept()
                elif ready is wakeup_in:
                    ready.recv(4096)
                else:
                    self._receive(ready)
        signal.set_wakeup_fd(-1)
        return self.leavers

    def _is_needed(self) -> bool:
        if self.stop_requested or not self.server.is_running():
            return False
        if not self.users:
            self._accept()  # another user may have connected since
        return bool(self.users)

    def _stop(self, *_: object) -> None:
        self.stop_requested = True

    def _accept(self) -> None:
        """Accept every connection that waits."""
        while True:
            try:
                user, _ = self.control.accept()
            except BlockingIOError:
                return
            self._welcome(user)

    def _welcome(self, user: socket.socket) -> None:
        if not send(user, {"ready": {"sockets": str(self.server.sockets)}}):
            user.close()
            return
        user.setblocking(False)
        self.users.add(user)
        self.selector.register(user, selectors.EVENT_READ)

    def _receive(self, user: socket.socket) -> None:
        """Note that a user leaves, with a message, or without one because it died."""
        try:
            message_bytes = user.recv(4096)
        except BlockingIOError:
            return
        except ConnectionError:
            message_bytes = b""
        self.selector.unregister(user)
        self.users.discard(user)
        if message_bytes:
            user.setblocking(True)
            self.leavers.append(user)
        else:
            user.close()

    def _answer_leavers(self) -> None:
        """Answer the users that leave: the server goes on, so they have nothing to wait for."""
        for leaver in self.leavers:
            send(leaver, {"bye": True})
            leaver.close()
        self.leavers.clear()


def send(user: socket.socket, message: dict[str, object]) -> bool:
    """Send a message; return False if the user is gone, which is no error of the keeper."""
    try:
        user.sendall(json.dumps(message).encode() + b"\n")
    except (ConnectionError, BlockingIOError):
        return False
    return True


def receive_order(first: socket.socket) -> cluster.StartOrder:
    with first.makefile("r") as lines:
        order = json.loads(lines.readline())
    return cluster.StartOrder(Path(order["program"]), dict(order["settings"]))


def run_keeper(directory: Path, first: socket.socket) -> None:
    """Start the server, keep it for its users, and stop it."""
    order = receive_order(first)
    with cluster.Cluster(directory) as opened:
        server = opened.start(order)
        try:
            control = socket.socket(socket.AF_UNIX)
            control.bind(str(opened.control_path))
            control.listen(64)
            leavers = Keeper(server, control).serve(first)
            opened.control_path.unlink(missing_ok=True)
            control.close()  # a user that connects from here on is refused, and starts a keeper that waits for this one
        finally:
            server.stop()
    for leaver in leavers:
        send(leaver, {"stopped": True})


def main(arguments: list[str]) -> int:
    """`keeper DIRECTORY DESCRIPTOR`: the cluster's directory, and the first user's connection."""
    if os.fork():  # so it is no child of the user: it may live longer, and no process has to wait for it
        os._exit(0)
    os.umask(0o077)
    first = socket.socket(fileno=int(arguments[1]))
    try:
        run_keeper(Path(arguments[0]), first)
    except cluster.ClusterFailed as failure:
        send(first, {"error": str(failure)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
