"""A drag asks the server once about everything it could end on, however many targets there are."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.servers.web_page import Database, Floor, Person, serving

pytestmark = pytest.mark.browser

NewPerson = Callable[..., Person]


@pytest.fixture(scope="module")
def floor(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """A running server whose nodes are names: no machine is behind them."""
    home = tmp_path_factory.mktemp("server")
    with database(home.name) as url, serving(home, url) as server:
        floor = Floor(server, None, *server.secrets())
        yield floor
        floor.api.close()


def fill(floor: Floor, deployment: str, count: int, *roles: str) -> list[str]:
    """A deployment with so many nodes and these roles; the names of the nodes."""
    floor.call("POST", "/deployments", {"name": deployment})
    names = [f"{deployment}{number:03}.rack.example" for number in range(count)]
    for name in names:
        floor.call("POST", "/nodes", {"name": name, "deployment": deployment})
    for role in roles:
        floor.call("POST", "/deployment_roles", {"deployment": deployment, "role": role})
    return names


def counted(page: Page) -> list[str]:
    """Grows with each request that asks about binding."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/bind" in request.url else None)
    return asked


def head(page: Page, role: str) -> Locator:
    return page.locator(f"[data-role='{role}']")


def row(page: Page, node: str) -> Locator:
    return page.locator(f"tr[data-node='{node}'] th")


def let_go(page: Page) -> None:
    """End the drag without a drop."""
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator(".ghost")).to_have_count(0)


def test_a_role_over_many_nodes_and_a_node_over_all_roles_ask_once_each(person: NewPerson, floor: Floor) -> None:
    names = fill(floor, "once", 120, "test-conflict-says", "test-cluster")
    refusing = names[:3]
    bindings = [{"node": node, "role": "test-conflict-silent"} for node in refusing]
    floor.call("POST", "/deployments/once/bind", {"bindings": bindings})
    body = {"bindings": [{"node": refusing[0], "role": "test-conflict-says"}]}
    reason = floor.api.post("/deployments/once/bind", json=body).json()["detail"]
    before = floor.all("/node_roles")

    one = person()
    one.log_in("/deployments/once")
    page = one.page
    page.get_by_label("Search nodes").fill("once")
    palette = page.locator("[data-palette-node]")
    expect(palette).to_have_count(len(names))
    asked = counted(page)

    one.hold(head(page, "test-conflict-says"), row(page, refusing[0]))
    expect(palette.and_(page.locator("[data-mark='refuses']"))).to_have_count(len(refusing))
    expect(palette.and_(page.locator("[data-mark='takes']"))).to_have_count(len(names) - len(refusing))
    expect(page.locator(".ghost .no")).to_contain_text(reason)
    for node in names[1:12]:
        row(page, node).hover(force=True)
        expect(page.locator(".ghost .no" if node in refusing else ".ghost .yes")).to_contain_text(node)
    let_go(page)
    assert len(asked) == 1

    one.hold(page.locator(f"[data-palette-node='{refusing[0]}']"), head(page, "test-conflict-says"))
    expect(page.locator("th[data-mark='refuses']", has=head(page, "test-conflict-says"))).to_be_visible()
    expect(page.locator("th[data-mark='takes']", has=head(page, "test-cluster"))).to_be_visible()
    expect(page.locator(".ghost .no")).to_contain_text(reason)
    head(page, "test-cluster").hover(force=True)
    expect(page.locator(".ghost .yes")).to_contain_text("test-cluster")
    let_go(page)
    assert len(asked) == 2
    assert floor.all("/node_roles") == before


def test_rows_that_come_into_sight_during_a_drag_are_asked_about_together(person: NewPerson, floor: Floor) -> None:
    names = fill(floor, "late", 80, "test-cluster")
    one = person()
    one.log_in("/deployments/late")
    page = one.page
    page.get_by_label("Search nodes").fill("nothing is called so")
    expect(page.locator("[data-palette-node]")).to_have_count(0)
    asked = counted(page)
    one.hold(head(page, "test-cluster"), row(page, names[3]))
    expect(page.locator(".ghost .yes")).to_contain_text(names[3])
    assert len(asked) == 1
    page.mouse.wheel(0, 5000)
    expect(page.locator(f"tr[data-node='{names[-1]}']")).to_be_attached()
    for node in names[-5:]:
        row(page, node).hover(force=True)
        expect(page.locator(".ghost .yes")).to_contain_text(node)
    let_go(page)
    assert len(asked) == 2
