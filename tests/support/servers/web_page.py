"""What browser tests stand on: a server as people start it, simulated machines beside it, and a person's browser.

The server is a process, so that it can be killed; the machines live in a thread of ours with an event loop of its own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect
from tests.support.servers.server_processes import ServerProcess
from tests.support.waiting import PATIENCE

from rackwright.client.access import Access
from rackwright.client.transport import open_http
from rackwright.lab.lab import Lab, running_lab
from rackwright.lab.machine import Behaviour, Machine
from rackwright.server.first_admin import PASSWORD_FILE, TOKEN_FILE

Database = Callable[[str], contextlib.AbstractContextManager[str]]
"""Makes a database for whatever is called so; gives its address."""

MOST_TABS = 300
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=PATIENCE * 1000)


class PageServer(ServerProcess):
    """A server with the roles that simulated machines run, and those that try every rule."""

    def __init__(self, home: Path, database_url: str, *options: str) -> None:
        # A run is not given up, nor a machine held dead, because either is busy for half a minute.
        super().__init__(home, database_url, lease=120, heartbeat=60)
        self._options += ["--test-barclamp", *options]

    def secrets(self) -> tuple[str, str]:
        """The administrator's password and token, which the first start left."""
        return (self.home / PASSWORD_FILE).read_text().strip(), (self.home / TOKEN_FILE).read_text().strip()


@contextlib.contextmanager
def serving(home: Path, database_url: str, *options: str) -> Iterator[PageServer]:
    """A server that is ready, and does not outlive the block."""
    server = PageServer(home, database_url, *options)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        if server.running:
            server.kill()


class Machines:
    """Simulated machines that run while the block lasts."""

    def __init__(self, lab: Lab, loop: asyncio.AbstractEventLoop) -> None:
        self.lab = lab
        self._loop = loop

    def power_on(self) -> None:
        self._loop.call_soon_threadsafe(self.lab.power_on)

    def installs(self, number: int) -> int:
        """How often a machine was installed, by its own account."""
        return self.lab.machines[number].journal.installs

    def break_down(self, number: int, reason: str) -> None:
        """The machine refuses all work, until it is mended."""

        async def refuse(*_: object) -> None:
            raise ValueError(reason)

        vars(self.lab.machines[number])["execute"] = refuse

    def mend(self, number: int) -> None:
        vars(self.lab.machines[number]).pop("execute", None)


@contextlib.contextmanager
def machines(address: str, count: int, behaviour: Behaviour | None = None) -> Iterator[Machines]:
    ready = threading.Event()
    made: list[Machines] = []
    stop: list[Callable[[], object]] = []

    async def live() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with running_lab([address], count, behaviour or Behaviour(boot=0.1, install=0.3, heartbeat=5.0)) as lab:
            made.append(Machines(lab, loop))
            stop.append(lambda: loop.call_soon_threadsafe(over.set))
            ready.set()
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="machines", daemon=True)
    thread.start()
    ready.wait(PATIENCE)
    assert made, "the machines did not start"
    try:
        yield made[0]
    finally:
        stop[0]()
        thread.join(PATIENCE)


class Floor:
    """A running server, its machines, and the API as a program uses it."""

    def __init__(self, server: PageServer, lab: Machines | None, password: str, token: str) -> None:
        """`lab` None: there are no machines."""
        self.server = server
        self._lab = lab
        self.password = password
        self.api = open_http(Access(server.address, token), PATIENCE)

    @property
    def lab(self) -> Machines:
        assert self._lab is not None, "there are no machines here"
        return self._lab

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.api.request(method, path, json=body, params=query)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def all(self, path: str, **query: Any) -> list[Any]:
        found: list[Any] = self.call("GET", path, limit=1000, **query)["items"]
        return found

    def free_nodes(self) -> list[str]:
        """Machines that nothing but discovery was done to."""
        taken = {one["node"] for one in self.all("/node_roles") if one["deployment"] != "system"}
        nodes = self.all("/nodes", sort="name", system=False, admin=False)
        return [node["name"] for node in nodes if node["available"] and node["name"] not in taken]

    def number(self, node: str) -> int:
        """Which machine of the lab a node is."""
        (mac,) = self.call("GET", f"/nodes/{node}")["macs"]
        return int(mac.replace(":", ""), 16) & 0xFFFF

    def machine(self, node: str) -> Machine:
        return self.lab.lab.machines[self.number(node)]

    def states(self, deployment: str) -> set[str]:
        return {one["state"] for one in self.all("/node_roles", deployment=deployment)}


class Person:
    """Somebody at a browser of their own."""

    def __init__(
        self, browser: Browser, floor: Floor, *, dark: bool = False, width: int = 1280, height: int = 860
    ) -> None:
        self.context = browser.new_context(
            base_url=floor.server.address,
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(PATIENCE * 1000)
        self.page: Page = self.context.new_page()
        self.floor = floor
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.loads = 0
        self.page.on("load", lambda _: self._loaded())

    def _loaded(self) -> None:
        self.loads += 1

    def log_in(self, path: str = "/") -> None:
        self.page.goto(path)
        self.page.get_by_label("Name").fill("admin")
        self.page.get_by_label("Password").fill(self.floor.password)
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.locator("[data-live='live']")).to_be_attached()

    def follow(self, text: str) -> None:
        """Go to a page by the navigation, not by loading it."""
        self.page.get_by_role("navigation").get_by_role("link", name=text).click()

    def reach(self, what: Locator) -> None:
        """Come to it with the Tab key, as somebody without a mouse."""
        what.wait_for()
        for _ in range(MOST_TABS):
            if what.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{what} cannot be reached with the Tab key")

    def press(self, what: Locator, key: str = "Enter") -> None:
        self.reach(what)
        self.page.keyboard.press(key)

    def write(self, what: Locator, text: str) -> None:
        self.reach(what)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def drag(self, what: Locator, onto: Locator) -> None:
        """Press, move as a hand does, let go."""
        self.hold(what, onto)
        self.page.mouse.up()

    def hold(self, what: Locator, over: Locator) -> None:
        what.scroll_into_view_if_needed()
        start, end = what.bounding_box(), over.bounding_box()
        assert start is not None, f"{what} is not on the page"
        assert end is not None, f"{over} is not on the page"
        mouse = self.page.mouse
        mouse.move(start["x"] + start["width"] * 0.7, start["y"] + start["height"] / 2)
        mouse.down()
        mouse.move(end["x"] + end["width"] / 2, end["y"] + end["height"] / 2, steps=12)

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
