"""Secrets that a script prints, fails with or writes back are masked, except where an attrib is declared secret."""

from pathlib import Path

import asyncssh
from tests.support.machines.script_trial import trial
from tests.support.rack import Rack

from rackwright.annealer.step import MASKED_IN_WALL, execute_run, finished_run
from rackwright.domain.runs import Answer
from rackwright.domain.sealed import MASK, is_sealed
from rackwright.reach.parcel import NodeFolders
from rackwright.reach.ssh_connections import Target
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.snapshots import set_binding_data
from rackwright.store.runs.settling import settle_runs

BARCLAMP = """
name: safe
roles:
  - name: keeper
    jig: script
    attribs:
      - name: keeper-password
        map: keeper/password
        secret: true
        schema: {type: string}
      - name: keeper-url
        map: keeper/url
        schema: {type: string}
"""

PASSWORD = "open sesame, and 'more' of \"it\""

SCRIPT = """
password=$(read_attribute keeper/password)
printf 'plainly %s\\n' "$password"
printf '%s' "$password" | head -c 9; sleep 0.1; printf '%s' "$password" | tail -c +10; echo
printf '%s' "$password" | fold -w 7; echo
for before in '' x xx; do printf '%s' "$before$password" | base64 -w 20; done
set -x; : "$password"; set +x
cat "$RACKWRIGHT_FOLDER/attrs.json"
write_attribute keeper/password "$password"
write_attribute keeper/url "pg://$password@db"
echo "it ends: $password" >&2
"""


async def bound(rack: Rack) -> None:
    await rack.import_text(BARCLAMP)
    await rack.node("n1")
    await rack.anneal()
    await rack.deployment("web")
    await rack.bind("web", ("n1", "keeper"))
    node_id = await rack.node_id("n1")

    async def work(session: Session) -> None:
        deployment = await get_deployment(session, "web", EVERYTHING)
        await set_binding_data(session, deployment, node_id, "keeper", {"keeper": {"password": PASSWORD}})

    await rack.do(work)
    await rack.commit("web")


async def test_what_a_script_says_of_its_secrets_is_masked(rack: Rack, tmp_path: Path) -> None:
    await bound(rack)
    [run] = await rack.claim()
    folders = NodeFolders(str(tmp_path / "locks"), str(tmp_path / "work"))
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with trial(tmp_path / "scripts", key, Target("", local=True, folders=folders)) as server:
        log: list[str] = []
        server.scripts(keeper=SCRIPT)
        ended = await execute_run(rack.store, {"script": server.jig}, run, log.append)
        server.scripts(keeper=f"{SCRIPT}\nexit 3")
        again = run.__class__(**{**vars(run), "id": run.id + 1})
        failed = await execute_run(rack.store, {"script": server.jig}, again, log.append)
    shown = "".join(log)
    assert ended.answer is Answer.SUCCEEDED, ended.error
    assert f"plainly {MASK}\n" in shown
    assert f"it ends: {MASK}\n" in shown
    assert MASKED_IN_WALL in shown
    assert failed.answer is Answer.FAILED
    assert f"it ends: {MASK}" in failed.error
    for text in (shown, failed.error):
        assert not [part for part in ("sesam", "e, and", "b3BlbiBz", "9wZW4gc2", "VzYW1l") if part in text]
    await rack.do(lambda session: settle_runs(session, [finished_run(run, ended)]))
    [(wall,)] = await rack.rows("SELECT wall FROM node_roles WHERE id = :id", id=run.node_role_id)
    assert isinstance(wall, dict)
    assert is_sealed(wall["keeper"]["password"])
    assert wall["keeper"]["url"] == f"pg://{MASK}@db"
