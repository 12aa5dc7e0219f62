"""How the built page is served: what browsers keep, what they may do, and what is not the page's to answer."""

import gzip
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from rackwright.api.routes.service.ui import add_page


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<p>page</p>")
    (folder / "favicon.svg").write_text("<svg/>")
    script = folder / "assets" / "index-Ab12.js"
    script.write_text("run()")
    script.with_name("index-Ab12.js.gz").write_bytes(gzip.compress(b"run()"))
    return folder


@pytest.fixture
def browser(built: Path) -> TestClient:
    app = FastAPI()

    @app.post("/api/v2/nodes/{node}/accept")
    async def accept(node: str) -> str:
        return node

    add_page(app, built)
    return TestClient(app)


@pytest.mark.parametrize("path", ["/", "/nodes", "/deployments/web", "/noderoles/12"])
def test_every_place_is_the_page(browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.text) == (200, "<p>page</p>")


def test_a_file_with_a_digest_is_kept_for_good_and_the_page_is_asked_for_again(browser: TestClient) -> None:
    assert "immutable" in browser.get("/assets/index-Ab12.js").headers["cache-control"]
    assert browser.get("/").headers["cache-control"] == "no-cache"


def test_a_page_that_did_not_change_is_not_sent_again(browser: TestClient) -> None:
    etag = browser.get("/").headers["etag"]
    answer = browser.get("/", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


def test_scripts_go_over_the_wire_compressed_to_who_takes_it(browser: TestClient) -> None:
    packed = browser.get("/assets/index-Ab12.js", headers={"Accept-Encoding": "gzip"})
    plain = browser.get("/assets/index-Ab12.js", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text == "run()"
    assert packed.headers["content-type"].startswith("text/javascript")


def test_the_page_runs_no_script_but_ours_and_nobody_frames_it(browser: TestClient) -> None:
    policy = browser.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v2/nothing", 404),
        ("GET", "/boot/nothing", 404),
        ("GET", "/assets/gone-Cd34.js", 404),
        ("GET", "/assets/../index.html", 200),  # the client itself makes this /index.html
        ("GET", "/assets/%2e%2e%2f%2e%2e%2fui.py", 404),
        ("GET", "/api/v2/nodes/n1/accept", 405),
        ("DELETE", "/nodes", 405),
    ],
)
def test_what_is_not_the_pages_is_not_answered_by_it(browser: TestClient, method: str, path: str, status: int) -> None:
    assert browser.request(method, path).status_code == status


def test_a_new_build_is_seen_by_a_running_server(browser: TestClient, built: Path) -> None:
    browser.get("/")
    fresh = built / "index.new"
    fresh.write_text("<p>new</p>")
    fresh.rename(built / "index.html")
    assert browser.get("/").text == "<p>new</p>"


def test_without_a_build_the_page_says_what_to_do(tmp_path: Path) -> None:
    app = FastAPI()
    add_page(app, tmp_path / "nothing")
    answer = TestClient(app).get("/")
    assert answer.status_code == 503
    assert "make ui" in answer.text
