"""The web page with 5,000 noderoles: bytes of the first load, time until it is usable, and frames a second while the
annealer runs 100 noderoles a second anew and the page shows every step of it. Chromium without a graphics card.

A run takes long enough to be seen: of runs that end within one write, the page would be told only the end, and nothing
in sight would change. How often the lights in sight did change is counted, and is a goal.

    .venv/bin/python bench/ui.py [--nodes 500] [--seconds 10]
"""

import argparse
import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page, async_playwright

import graph
from rackwright.api.app import create_app
from rackwright.domain.states import Trigger
from rackwright.server.composition import running_server
from rackwright.server.first_admin import PASSWORD_FILE
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import Session
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.settings import write_setting
from rackwright.store.store import Store
from report import at_least, at_most, emit
from waiting import HOUR, until

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET = ["--disable-background-networking", "--disable-component-update"]
LENGTH = 10
A_SECOND = 100
STEPS = 10
"""Bundles a second in which noderoles are sent off again."""
RUN_SECONDS = 0.3
LAST = f"link-{LENGTH - 1}"
"""The role that runs anew: no other stands on it, so each time it is one noderole that changes."""

COUNT_FRAMES = """([seconds, role]) => new Promise(done => {
    const times = []; let changes = 0;
    const lights = document.querySelectorAll(`[data-noderole][aria-label^="${role} on "]`);
    const watch = new MutationObserver(list => { changes += list.length; });
    for (const light of lights) watch.observe(light, { attributeFilter: ['aria-label'] });
    const start = performance.now();
    const frame = now => {
        times.push(now);
        if (now - start < seconds * 1000) requestAnimationFrame(frame);
        else { watch.disconnect(); done({ times, changes, lights: lights.length }); }
    };
    requestAnimationFrame(frame);
})"""


async def active(store: Store) -> int:
    async with store.read() as session:
        count: int = await session.value("SELECT count(*) FROM node_roles WHERE state = 0")
    return count


@contextlib.asynccontextmanager
async def site(home: Path, nodes: int) -> AsyncIterator[tuple[Store, str, str]]:
    """A server that anneals, with a chain of noderoles on each node, all of them ACTIVE."""
    async with running_server(Options(home, tick=1)) as server, listening(create_app(server)) as address:
        chain = graph.chain(LENGTH)
        *others, last = chain.roles
        last = replace(last, jig="simulate", template={"simulate": {"seconds": RUN_SECONDS}})
        roles = replace(chain, jigs=(), roles=(*others, last))  # the server's own jigs run them
        await server.store.change_graph(lambda session: import_barclamps(session, [roles]))
        await server.store.change(lambda session: write_setting(session, "cap", A_SECOND))
        await graph.fill_nodes(server.store, nodes, LENGTH)

        async def all_active() -> bool:
            return await active(server.store) >= nodes * LENGTH

        await until(all_active, "every noderole is ACTIVE", HOUR, every=0.5)
        yield server.store, address, (home / PASSWORD_FILE).read_text().strip()


async def first_load(context: BrowserContext, password: str) -> tuple[Page, dict[str, int]]:
    """Log in on a cold browser; bytes as they went over the wire, of the page's own files and of the API."""
    page = await context.new_page()
    wire = await context.new_cdp_session(page)
    await wire.send("Network.enable")
    urls: dict[str, str] = {}
    sizes = {"files": 0, "api": 0}

    def ended(event: dict[str, Any]) -> None:
        kind = "api" if "/api/" in urls.get(event["requestId"], "") else "files"
        sizes[kind] += int(event["encodedDataLength"])

    wire.on("Network.requestWillBeSent", lambda event: urls.update({event["requestId"]: event["request"]["url"]}))
    wire.on("Network.loadingFinished", ended)
    await page.goto("/")
    await page.get_by_label("Name").fill("admin")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()
    await page.locator("[data-live='live']").wait_for(state="attached")
    await page.wait_for_load_state("load")
    return page, dict(sizes)  # what later pages load is not counted


async def usable(page: Page, path: str, sign: str) -> float:
    """Seconds from the start of a full load until something that stands for usable is there."""
    await page.goto(path, wait_until="commit")
    await page.locator(sign).first.wait_for()
    return float(await page.evaluate("performance.now()")) / 1000


async def churn(store: Store, seconds: float) -> int:
    """Send noderoles off again, evenly, so many a second; says how many."""
    async with store.read() as session:
        rows = await session.rows(
            "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = role_id AND name = :last", last=LAST
        )
    ids = [row.id for row in rows]
    asked = sent = 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        chosen = [ids[(asked + step) % len(ids)] for step in range(A_SECOND // STEPS)]

        async def work(session: Session, chosen: list[int] = chosen) -> int:
            return len(await move_noderoles(session, Trigger.RETRY, chosen))

        asked += len(chosen)
        sent += await store.change(work)
        await asyncio.sleep(max(0.0, began + asked / A_SECOND - time.monotonic()))
    return sent


def frames(times: list[float]) -> dict[str, float]:
    gaps = sorted(later - sooner for sooner, later in itertools.pairwise(times))
    seconds = (times[-1] - times[0]) / 1000
    return {"per_second": round(len(gaps) / seconds, 1), "worst_5_percent_ms": round(gaps[int(len(gaps) * 0.95)], 1)}


async def main(nodes: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="rackwright-bench-ui-") as home:
        async with site(Path(home), nodes) as (store, address, password), async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *QUIET])
            context = await browser.new_context(base_url=address, viewport={"width": 1280, "height": 860})
            context.set_default_timeout(120_000)
            page, sizes = await first_load(context, password)
            overview = await usable(page, "/", "[data-live='live']")
            collapsed = await usable(page, "/graph", ".svelte-flow__node")
            by_node = await usable(page, "/graph?by=node", ".svelte-flow__node")
            matrix = await usable(page, "/deployments/bench", "[data-noderole]")
            still = frames((await page.evaluate(COUNT_FRAMES, [3, LAST]))["times"])
            counted, sent = await asyncio.gather(page.evaluate(COUNT_FRAMES, [seconds, LAST]), churn(store, seconds))
            busy = frames(counted["times"])
            runs_in_sight = sent * counted["lights"] / nodes
            await browser.close()
    emit(
        "ui",
        {
            "noderoles": nodes * LENGTH,
            "first_load_bytes": sizes,
            "seconds_to_usable": {
                "overview": round(overview, 2),
                "deployment": round(matrix, 2),
                "graph_by_role": round(collapsed, 2),
                "graph_by_node": round(by_node, 2),
            },
            "frames_at_rest": still,
            "frames_while_busy": busy,
            "noderoles_run_again_a_second": round(sent / seconds, 1),
            "lights_in_sight": counted["lights"],
            "changes_of_lights_in_sight": counted["changes"],
        },
        [
            at_most("kB of the first load, compressed, before the graph", sizes["files"] / 1000, 200),
            at_least("frames a second while 100 noderoles a second change", busy["per_second"], 30),
            # Under way and ACTIVE again, at the least; those sent off last may not have ended.
            at_least("changes of a light in sight for each of its runs", counted["changes"] / runs_in_sight, 1.5),
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    asyncio.run(main(given.nodes, given.seconds))
