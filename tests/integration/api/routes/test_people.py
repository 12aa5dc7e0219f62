"""Users, tokens, sessions: who gets in, what each may, and when it ends."""

import asyncio
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.people_of_all_kinds import PASSWORD, House, house, ok, refused

from rackwright.api.auth import passwords
from rackwright.api.auth.passwords import Passwords
from rackwright.server.first_admin import PASSWORD_FILE, TOKEN_FILE
from rackwright.store.people.permission_changes import note_permission_change


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, migrated_url) as opened:
        yield opened


# --- first start


async def test_first_start_makes_an_admin_whose_password_only_the_owner_of_the_host_reads(home: House) -> None:
    for name in (PASSWORD_FILE, TOKEN_FILE):
        assert stat.S_IMODE((home.home / name).stat().st_mode) == 0o600
    browser = await home.browser("admin", home.admin_password)
    me = await ok(browser.get("/me"))
    assert (me["name"], me["role"], me["permissions"]) == ("admin", "admin", ["read", "write", "administer"])


async def test_a_second_start_makes_no_second_admin(home: House, migrated_url: str, tmp_path: Path) -> None:
    password, token = home.admin_password, (home.home / TOKEN_FILE).read_text()
    async with house(tmp_path, migrated_url) as restarted:
        assert (restarted.admin_password, (restarted.home / TOKEN_FILE).read_text()) == (password, token)
        assert len((await ok(restarted.admin.get("/users")))["items"]) == 1


async def test_secrets_are_stored_hashed(home: House) -> None:
    token = await home.token("admin")
    browser = await home.browser("admin", home.admin_password)
    async with home.store.read() as session:
        rows = [
            str(await session.rows(f"SELECT t::text FROM {table} t"))
            for table in ("users", "tokens", "sessions", "events")
        ]
    for secret in (token, home.admin_password, browser.cookies["rackwright_session"]):
        assert not [row for row in rows if secret in row]


# --- sessions


async def test_the_cookie_is_for_the_server_alone(home: House) -> None:
    answer = await home.client().post("/sessions", json={"name": "admin", "password": home.admin_password})
    flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert "secure" not in flags
    secure = await home.client().post(
        "https://house.example/api/v2/sessions", json={"name": "admin", "password": home.admin_password}
    )
    assert "; secure" in secure.headers["set-cookie"].lower()


async def test_a_session_changes_nothing_without_its_csrf_token(home: House) -> None:
    browser = await home.browser("admin", home.admin_password)
    csrf = browser.headers.pop("X-CSRF-Token")
    body = {"name": "grace"}
    refused(await browser.post("/users", json=body), 403, "cross-site")
    refused(await browser.post("/users", json=body, headers={"X-CSRF-Token": "guess"}), 403, "cross-site")
    assert (await ok(browser.get("/me")))["csrf"] == csrf
    await ok(browser.post("/users", json=body, headers={"X-CSRF-Token": csrf}))


async def test_a_page_of_another_site_can_neither_act_nor_log_in(home: House) -> None:
    browser = await home.browser("admin", home.admin_password)
    elsewhere = {"Origin": "https://evil.example"}
    refused(await browser.post("/users", json={"name": "x"}, headers=elsewhere), 403, "cross-site")
    login = {"name": "admin", "password": home.admin_password}
    refused(await home.client().post("/sessions", json=login, headers=elsewhere), 403, "cross-site")
    refused(await home.client().post("/sessions", json=login, headers={"Sec-Fetch-Site": "cross-site"}), 403)
    await ok(browser.post("/users", json={"name": "x"}, headers={"Origin": "http://house.example"}))


async def test_a_token_needs_no_csrf_token(home: House) -> None:
    await ok(home.admin.post("/users", json={"name": "grace"}, headers={"Origin": "https://tool.example"}))


async def test_logging_out_ends_the_session(home: House) -> None:
    browser = await home.browser("admin", home.admin_password)
    secret = browser.cookies["rackwright_session"]
    await ok(browser.delete("/sessions/current"))
    refused(await home.client().get("/me", headers={"Cookie": f"rackwright_session={secret}"}), 401)


async def test_a_new_password_ends_all_sessions_of_the_user_and_nobody_elses(home: House) -> None:
    await home.user("grace")
    first, second = await home.browser("grace"), await home.browser("grace")
    other = await home.browser("admin", home.admin_password)
    wrong = {"current": "not the password", "password": "another good one"}
    refused(await first.put("/me/password", json=wrong), 401, "wrong-login")
    await ok(first.put("/me/password", json=wrong | {"current": PASSWORD}))
    for browser in (first, second):
        refused(await browser.get("/me"), 401)
    await ok(other.get("/me"))
    refused(await home.client().post("/sessions", json={"name": "grace", "password": PASSWORD}), 401)
    await home.browser("grace", "another good one")


@pytest.mark.parametrize("aged", ["seen_at = now() - interval '13 hours'", "expires_at = now() - interval '1 second'"])
async def test_sessions_end_by_idling_and_by_age(home: House, aged: str) -> None:
    browser = await home.browser("admin", home.admin_password)

    async def age(session: Any) -> None:
        note_permission_change(session)
        await session.run(f"UPDATE sessions SET {aged}")

    await home.store.change(age)
    refused(await browser.get("/me"), 401)


async def test_a_session_can_be_ended_from_elsewhere(home: House) -> None:
    lost, here = await home.browser("admin", home.admin_password), await home.browser("admin", home.admin_password)
    listed = (await ok(here.get("/sessions")))["items"]
    assert [session["current"] for session in listed] == [False, True]
    await ok(here.delete(f"/sessions/{listed[0]['id']}"))
    refused(await lost.get("/me"), 401)
    await home.user("grace")
    refused(await (await home.browser("grace")).delete(f"/sessions/{listed[1]['id']}"), 404)


# --- guessing


async def test_guessing_a_password_is_limited_by_name_and_source_and_by_source(home: House) -> None:
    limits: Passwords = home.app.state.server.passwords
    for bucket in (limits.pairs, limits.addresses):
        bucket._clock = lambda: 0.0  # no time passes, however slow the machine
    await home.user("grace")
    for _ in range(10):
        client = home.client(source="192.0.2.1")
        refused(await client.post("/sessions", json={"name": "grace", "password": "guess"}), 401, "wrong-login")
    limited = await home.client(source="192.0.2.1").post("/sessions", json={"name": "grace", "password": PASSWORD})
    refused(limited, 429, "too-many-logins")
    assert 1 <= int(limited.headers["Retry-After"]) <= 10
    for number in range(20):
        client = home.client(source="198.51.100.1")
        refused(await client.post("/sessions", json={"name": f"n{number}", "password": "guess"}), 401)
    stuffing = await home.client(source="198.51.100.1").post("/sessions", json={"name": "new", "password": "guess"})
    refused(stuffing, 429, "too-many-logins")
    await home.browser("admin", home.admin_password, source="203.0.113.1")


async def test_wrong_passwords_of_others_keep_nobody_out_and_are_answered_ever_more_slowly(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "DELAY", 0.0)  # how long that is shall not matter here
    limits: Passwords = home.app.state.server.passwords
    for number in range(40):
        client = home.client(source=f"192.0.2.{number}")
        refused(await client.post("/sessions", json={"name": "admin", "password": "guess"}), 401, "wrong-login")
    monkeypatch.setattr(passwords, "DELAY", 7.0)
    assert limits.delay_after_failure("admin") == 7.0
    await home.browser("admin", home.admin_password, source="203.0.113.1")


async def test_logging_in_again_and_again_is_not_guessing(home: House) -> None:
    for _ in range(12):
        await home.browser("admin", home.admin_password)


async def test_a_failed_login_is_on_record_but_a_mistyped_name_is_not(home: House) -> None:
    await home.user("grace")
    await home.client().post("/sessions", json={"name": "grace", "password": "guess"})
    await home.client().post("/sessions", json={"name": "my secret password", "password": "guess"})
    failures = [event["data"] for event in await home.events("login.failed")]
    assert failures == [{"name": "grace", "address": "192.0.2.1"}, {"name": "unknown", "address": "192.0.2.1"}]


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaaaaaa", "gracegrace12", "x" * 257])
async def test_a_weak_password_is_refused(home: House, password: str) -> None:
    answer = await home.admin.post("/users", json={"name": "grace", "password": password})
    assert answer.status_code == 422
    assert "password" in answer.text


# --- tokens


async def test_a_token_is_shown_once_and_can_do_no_more_than_its_scope(home: House) -> None:
    created = await ok(home.admin.post("/tokens", json={"name": "dashboard", "scope": "read"}))
    reader = home.client(created["token"])
    assert (await ok(reader.get("/me")))["permissions"] == ["read"]
    refused(await reader.post("/deployments", json={"name": "web"}), 403)
    refused(await reader.post("/tokens", json={"name": "wider", "scope": "admin"}), 403)
    listed = (await ok(home.admin.get("/tokens")))["items"]
    assert [token["name"] for token in listed] == ["first start", "dashboard"]
    assert created["token"] not in str(listed)
    assert listed[1]["last_used_at"] is not None


async def test_a_token_cannot_make_one_that_may_more(home: House) -> None:
    writer = home.client(await home.token("admin", scope="write"))
    refused(await writer.post("/tokens", json={"name": "wider", "scope": "admin"}), 403)
    await ok(writer.post("/tokens", json={"name": "as wide", "scope": "write"}))


async def test_a_token_expires(home: House) -> None:
    past, soon = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(hours=1)
    refused(await home.admin.post("/tokens", json={"name": "x", "expires_at": past.isoformat()}), 422)
    client = home.client(await home.token("admin", expires_at=soon.isoformat()))
    await ok(client.get("/me"))

    async def expire(session: Any) -> None:
        note_permission_change(session)
        await session.run("UPDATE tokens SET expires_at = now() WHERE expires_at IS NOT NULL")

    await home.store.change(expire)
    refused(await client.get("/me"), 401)


async def test_a_revoked_token_is_refused_at_once(home: House) -> None:
    client = home.client(await home.token("admin"))
    own = (await ok(client.get("/me")))["token_id"]
    await ok(home.admin.delete(f"/tokens/{own}"))
    refused(await client.get("/me"), 401)


async def test_only_administrators_touch_the_tokens_of_others(home: House) -> None:
    grace = await home.someone("grace", "operator")
    admins = (await ok(home.admin.get("/tokens")))["items"][0]["id"]
    refused(await grace.get("/tokens?user=admin"), 403)
    refused(await grace.post("/tokens", json={"name": "x", "user": "admin"}), 403)
    refused(await grace.delete(f"/tokens/{admins}"), 404)
    assert len((await ok(home.admin.get("/tokens?user=grace")))["items"]) == 1


# --- roles


async def test_a_change_of_role_counts_for_the_next_request(home: House) -> None:
    grace = await home.someone("grace", "operator")
    await ok(grace.post("/deployments", json={"name": "one"}))
    await ok(home.admin.patch("/users/grace", json={"role": "viewer"}))
    refused(await grace.post("/deployments", json={"name": "two"}), 403)
    await ok(home.admin.patch("/users/grace", json={"disabled": True}))
    refused(await grace.get("/me"), 401)


async def test_the_last_admin_stays(home: House) -> None:
    for change in ({"role": "operator"}, {"disabled": True}):
        refused(await home.admin.patch("/users/admin", json=change), 409, "last-admin-user")
    refused(await home.admin.delete("/users/admin"), 409, "last-admin-user")
    await home.user("grace", "admin")
    await ok(home.admin.patch("/users/grace", json={"disabled": True}))
    refused(await home.admin.delete("/users/admin"), 409, "last-admin-user")


async def test_two_admins_who_demote_each_other_at_once_leave_one(home: House) -> None:
    for round in range(5):
        name = f"grace{round}"
        grace, admin = await home.someone(name, "admin"), home.admin
        answers = await asyncio.gather(
            grace.patch("/users/admin", json={"role": "viewer"}), admin.patch(f"/users/{name}", json={"role": "viewer"})
        )
        assert sorted(answer.status_code for answer in answers)[0] == 200
        async with home.store.read() as session:
            assert await session.value("SELECT count(*) FROM users WHERE role = 'admin'") == 1
        if answers[0].is_success:
            await ok(grace.patch("/users/admin", json={"role": "admin"}))
            await ok(home.admin.patch(f"/users/{name}", json={"role": "viewer"}))


async def test_a_user_without_password_cannot_log_in(home: House) -> None:
    await ok(home.admin.post("/users", json={"name": "robot", "role": "operator"}))
    for password in ("", "guess"):
        refused(await home.client().post("/sessions", json={"name": "robot", "password": password}), 401)
    await ok(home.client(await home.token("robot")).get("/me"))


async def test_who_did_what_is_on_record(home: House) -> None:
    grace = await home.someone("grace", "operator")
    await ok(grace.post("/deployments", json={"name": "web"}, headers={"X-Request-ID": "trace-of-grace"}))
    refused(await grace.get("/users"), 403)
    [created] = [event for event in await home.events("deployment.created") if event["data"]["name"] == "web"]
    assert (created["actor"], created["trace"]) == ("grace", "trace-of-grace")
    [no] = await home.events("permission.refused")
    assert (no["actor"], no["data"]["method"], no["data"]["path"]) == ("grace", "GET", "/api/v2/users")
    assert [event["data"]["name"] for event in await home.events("user.created")] == ["admin", "grace"]


async def test_a_trace_id_that_is_not_well_formed_is_replaced(home: House) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = await home.admin.get("/me", headers={"traceparent": parent})
    assert answer.headers["X-Request-ID"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    for bad in ("short", "x" * 65, "a b c d e f g h", "drop'table;--"):
        answer = await home.admin.get("/me", headers={"X-Request-ID": bad})
        assert answer.headers["X-Request-ID"] != bad
        assert len(answer.headers["X-Request-ID"]) == 32
