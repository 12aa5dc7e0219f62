"""How operators watch the server: metrics, readiness, and one trace from a request to the work it caused."""

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.servers.people_of_all_kinds import House, house, ok, refused
from tests.support.servers.postgres import execute

from rackwright.annealer.annealer import Annealer, Counters
from rackwright.annealer.step import step
from rackwright.api.routes.service.health import STALL_SECONDS, Readiness


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, migrated_url, metrics_allow=[ip_network("198.51.100.0/24")]) as opened:
        yield opened


async def scrape(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    answer = await client.get("http://house.example/metrics")
    assert answer.status_code == 200, answer.text
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(answer.text)
    }


async def test_metrics_are_for_those_who_may_read_and_for_listed_networks(home: House) -> None:
    refused(await home.client().get("http://house.example/metrics"), 401)
    refused(await home.client("rw_guessed").get("http://house.example/metrics"), 401)
    await scrape(home.client(source="198.51.100.7"))
    await scrape(await home.someone("grace", "viewer"))
    refused(await (await home.someone("nobody", "none")).get("http://house.example/metrics"), 403)


async def test_metrics_say_how_the_system_stands_and_what_was_asked(home: House) -> None:
    await ok(home.admin.post("/nodes", json={"name": "n1.rack.example", "alive": True}))
    await home.admin.get("/nodes/n1.rack.example")
    await home.admin.get("/nodes/n2.rack.example")
    await home.admin.get("/nowhere/at/all")
    metrics = await scrape(home.admin)
    assert metrics["rackwright_nodes"][("yes",)] == 2
    assert sum(metrics["rackwright_noderoles"].values()) > 0
    requests = {labels: value for labels, value in metrics["rackwright_http_requests"].items() if len(labels) == 3}
    assert requests[("GET", "/api/v2/nodes/{node}", "200")] == 1
    assert requests[("GET", "/api/v2/nodes/{node}", "404")] == 1
    assert requests[("any", "unknown", "404")] == 1
    assert not [labels for labels in requests if "n1.rack.example" in labels[1]]


async def test_ready_means_database_schema_and_annealer(home: House, migrated_url: str) -> None:
    answer = await home.client().get("http://house.example/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    execute(migrated_url, "UPDATE alembic_version SET version_num = '0001'")
    answer = await home.client().get("http://house.example/readyz")
    assert (answer.status_code, answer.json()) == (
        503,
        {"ready": False, "database": True, "migrations": False, "annealer": True, "disk": True, "broken": []},
    )


async def test_an_annealer_that_makes_no_passes_is_not_ready(home: House) -> None:
    counters = Counters()
    server = replace(home.app.state.server, annealer=cast(Annealer, SimpleNamespace(counters=counters)))
    times = iter([0.0, 0.0, STALL_SECONDS - 1, STALL_SECONDS + 1, STALL_SECONDS + 2])
    readiness = Readiness(lambda: next(times))
    seen = []
    for passes in (1, 1, 1, 2):
        counters.passes = passes
        seen.append(readiness.is_annealing(server))
    assert seen == [True, True, False, True]


async def test_a_trace_goes_from_the_request_through_the_events_to_the_run_and_its_log(home: House) -> None:
    await ok(home.admin.post("/nodes", json={"name": "n1.rack.example", "alive": True}))
    await ok(home.admin.post("/deployments", json={"name": "web"}))
    binding = {"node": "n1.rack.example", "role": "test-child", "deployment": "web"}
    bound = (await ok(home.admin.post("/node_roles", json=binding)))["id"]
    headers = {"X-Request-ID": "the-commit-of-web"}
    await ok(home.admin.post("/deployments/web/commit", json={}, headers=headers))
    server = home.app.state.server
    jigs = {**server.jigs, "noop": server.jigs["simulate"]}  # one whose runs have logs
    while (await step(server.store, jigs, server.claimant, 10, "annealer", hooks=server.hooks)).ran:
        pass
    happened = [event for event in await home.events("noderole.*") if event["subject_id"] == bound]
    assert [event["kind"] for event in happened][-2:] == ["noderole.transition", "noderole.active"]
    after = [event["trace"] for event in happened if event["kind"] != "noderole.proposed"]
    assert set(after) == {"the-commit-of-web"}
    async with home.store.read() as session:
        runs = await session.rows("SELECT id, trace FROM runs WHERE node_role_id = :id", id=bound)
    assert {row.trace for row in runs} == {"the-commit-of-web"}
    for row in runs:
        log = await home.admin.get(f"/runs/{row.id}/log")
        assert log.text.startswith("[trace the-commit-of-web]\n")
