"""Secrets: sealed at rest, opened for the jig alone, and the same input under any key."""

import json
from pathlib import Path

import pytest
from tests.support.rack import Rack

from rackwright.domain.catalogue import Attrib, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.sealed import MASK, is_sealed, masked
from rackwright.store.db.session import Session
from rackwright.store.db.vault import Vault, VaultLocked, load_vault, save_vault
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.snapshots import set_binding_data
from rackwright.store.resealing import reseal, rotate_key

BARCLAMP = """
name: safe
roles:
  - name: keeper
    jig: noop
    attribs:
      - name: keeper-password
        map: keeper/password
        secret: true
        schema: {type: string, minLength: 3}
"""


async def bound(rack: Rack, password: str) -> None:
    await rack.import_text(BARCLAMP)
    await rack.node("n1")
    await rack.deployment("web")
    await rack.bind("web", ("n1", "keeper"))
    await say(rack, password)
    await rack.commit("web")


async def say(rack: Rack, password: str) -> None:
    node_id = await rack.node_id("n1")

    async def work(session: Session) -> None:
        deployment = await get_deployment(session, "web", EVERYTHING)
        await set_binding_data(session, deployment, node_id, "keeper", {"keeper": {"password": password}})

    await rack.do(work)


async def everything_stored(rack: Rack) -> str:
    async with rack.store.read() as session:
        tables = ("node_roles", "snapshot_bindings", "runs", "events")
        found = [await session.value(f"SELECT json_agg(t)::text FROM {table} t") for table in tables]
    return json.dumps(found)


async def test_a_secret_is_nowhere_in_the_database_in_the_clear(rack: Rack) -> None:
    await bound(rack, "open sesame")
    await rack.anneal()
    assert "sesame" not in await everything_stored(rack)


async def test_a_jig_is_handed_the_secret_itself(rack: Rack) -> None:
    await bound(rack, "open sesame")
    staged = await rack.staged("n1", "keeper")
    keeper = staged["keeper"]
    assert isinstance(keeper, dict)
    assert is_sealed(keeper["password"])
    assert masked(staged)["keeper"] == {"password": MASK}  # type: ignore[index,call-overload]
    assert (await rack.opened("n1", "keeper"))["keeper"] == {"password": "open sesame"}


async def test_a_secret_that_does_not_fit_is_refused_without_being_repeated(rack: Rack) -> None:
    await rack.import_text(BARCLAMP)
    await rack.node("n1")
    await rack.deployment("web")
    await rack.bind("web", ("n1", "keeper"))
    with pytest.raises(Invalid) as refused:
        await say(rack, "xy")
    assert "xy" not in refused.value.message


async def test_a_new_key_takes_over_and_makes_nothing_run_again(rack: Rack) -> None:
    await bound(rack, "open sesame")
    await rack.anneal()
    old = rack.store.vault
    rack.store.vault = old.with_new_key()
    assert await rack.do(lambda session: reseal(session, rack.store.vault)) > 0
    rack.store.vault = Vault({2: rack.store.vault.keys[2]}, old.fingerprint_key)
    keeper = (await rack.opened("n1", "keeper"))["keeper"]
    assert keeper == {"password": "open sesame"}
    await rack.propose("web")
    assert (await rack.plan("web")).empty


def test_the_keys_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    vault = load_vault(tmp_path)
    assert load_vault(tmp_path) == vault
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    save_vault(vault.with_new_key(), tmp_path)
    assert load_vault(tmp_path).newest == 2


def test_without_its_key_a_secret_stays_shut() -> None:
    sealed = Vault.fresh().seal("open sesame")
    with pytest.raises(VaultLocked):
        Vault.fresh().open(sealed)


def test_of_a_secret_that_is_a_mapping_nothing_stays_beside_its_seal() -> None:
    vault = Vault.fresh()
    passwords = Attrib("keeper-passwords", "safe", ("keeper", "passwords"), secret=True)
    given: JsonObject = {"keeper": {"passwords": {"door": "open sesame"}, "size": 5}}
    sealed = vault.seal_secrets((passwords,), given)
    assert "sesame" not in json.dumps(sealed)
    assert vault.open_secrets((passwords,), sealed) == given


async def test_rotating_the_key_leaves_nothing_under_an_older_one(rack: Rack, tmp_path: Path) -> None:
    await bound(rack, "open sesame")
    await rack.anneal()
    await rotate_key(rack.store, tmp_path)
    assert load_vault(tmp_path).keys.keys() == {2}
    assert '"1:' not in await everything_stored(rack)
    assert (await rack.opened("n1", "keeper"))["keeper"] == {"password": "open sesame"}


async def test_a_rotation_that_was_ended_in_the_middle_is_completed_by_the_next(
    rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bound(rack, "open sesame")

    async def killed(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("rackwright.store.resealing.reseal", killed)
    with pytest.raises(KeyboardInterrupt):
        await rotate_key(rack.store, tmp_path)
    monkeypatch.undo()
    rack.store.vault = load_vault(tmp_path)
    assert (await rack.opened("n1", "keeper"))["keeper"] == {"password": "open sesame"}
    await rotate_key(rack.store, tmp_path)
    assert load_vault(tmp_path).keys.keys() == {3}
    assert (await rack.opened("n1", "keeper"))["keeper"] == {"password": "open sesame"}
