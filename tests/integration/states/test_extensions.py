"""Extension modules with real ssh-keygen keys: taken if signed, refused if unsigned, altered or older."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.programs import make_ssh_key

from rackwright.cli.main import run as rackwright
from rackwright.states.extensions import (
    NAMESPACE,
    DatastoreSource,
    ExtensionRefused,
    FolderSource,
    Loader,
    Source,
    UrlSource,
    VersionHistory,
    load_tree_catalogue,
    sign,
)
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import Tree
from rackwright.states.refusal import RunRefused
from rackwright.states.running.execution import PlanExecution

CODE = """
from rackwright.states.module import Argument, Check, Result, StateFunction

def check(arguments, context):
    return Check({"greeting": arguments["name"]}, "would greet")

def apply(arguments, check, context):
    return Result(True, check.changes, "greeted")

FUNCTIONS = (StateFunction("hello", "Greets.", (Argument("name", required=True),), check, apply),)
"""


class Workshop:
    """A tree with one signed module, a key, and a node that trusts it."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.modules = self.tree / "_modules"
        self.modules.mkdir(parents=True)
        self.key = make_ssh_key(folder / "key")
        self.signers = folder / "signers"
        self.signers.write_text(f"alice {Path(f'{self.key}.pub').read_text()}")
        self.seen = folder / "seen.json"
        self.file = self.modules / "greet.py"
        self.put(CODE, "1.0")

    def put(self, code: str, version: str, key: Path | None = None) -> None:
        self.file.write_text(code)
        manifest = sign(code.encode(), "greet", version, key or self.key)
        Path(f"{self.file}.manifest").write_text(manifest.dump())

    def loader(self, *sources: Source) -> Loader:
        return Loader(sources or (FolderSource(self.modules),), self.signers, VersionHistory(self.seen))

    @property
    def trust(self) -> list[str]:
        return ["--signers", str(self.signers), "--seen", str(self.seen)]


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_a_signed_module_is_loaded_with_its_functions(workshop: Workshop) -> None:
    extension = workshop.loader().load("greet")
    assert extension is not None
    assert (extension.version, extension.signer) == ("1.0", "alice")
    assert [function.name for function in extension.functions] == ["hello"]
    assert list(workshop.loader().functions()) == ["greet"]


def test_an_unsigned_module_is_refused_and_told_how_to_sign(workshop: Workshop) -> None:
    Path(f"{workshop.file}.manifest").unlink()
    with pytest.raises(ExtensionRefused, match=r"is not signed.*rackwright module sign"):
        workshop.loader().load("greet")


def test_an_altered_module_is_refused_before_a_line_of_it_runs(workshop: Workshop, tmp_path: Path) -> None:
    workshop.file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + CODE)
    with pytest.raises(ExtensionRefused, match="altered after it was signed"):
        workshop.loader().load("greet")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("field", "value"), [("version", "9.0"), ("sha256", "")])
def test_a_manifest_changed_after_signing_is_refused(workshop: Workshop, field: str, value: str) -> None:
    path = Path(f"{workshop.file}.manifest")
    manifest = json.loads(path.read_text())
    if field == "sha256":
        workshop.file.write_text("FUNCTIONS = ()\n")
        value = subprocess.check_output(["sha256sum", str(workshop.file)], text=True).split()[0]
    path.write_text(json.dumps({**manifest, field: value}))
    with pytest.raises(ExtensionRefused, match="signature is not good"):
        workshop.loader().load("greet")


def test_a_manifest_of_another_module_is_refused(workshop: Workshop) -> None:
    (workshop.modules / "other.py").write_text(CODE)
    Path(f"{workshop.modules}/other.py.manifest").write_bytes(Path(f"{workshop.file}.manifest").read_bytes())
    with pytest.raises(ExtensionRefused, match="its manifest is that of 'greet'"):
        workshop.loader().load("other")


def test_a_key_that_is_not_trusted_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    workshop.put(CODE, "1.1", make_ssh_key(tmp_path / "mallory"))
    with pytest.raises(ExtensionRefused, match=r"not signed by a key that .*signers trusts"):
        workshop.loader().load("greet")


def test_a_key_trusted_for_something_else_only_is_refused(workshop: Workshop) -> None:
    public = Path(f"{workshop.key}.pub").read_text()
    workshop.signers.write_text(f'alice namespaces="git" {public}')
    with pytest.raises(ExtensionRefused, match="greet"):
        workshop.loader().load("greet")
    workshop.signers.write_text(f'alice namespaces="{NAMESPACE}" {public}')
    assert workshop.loader().load("greet") is not None


def test_a_signature_made_for_another_purpose_is_refused(workshop: Workshop) -> None:
    path = Path(f"{workshop.file}.manifest")
    manifest = json.loads(path.read_text())
    text = "".join(f"{key}: {manifest[key]}\n" for key in ("name", "version", "sha256"))
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(workshop.key)]
    signature = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    path.write_text(json.dumps({**manifest, "signature": signature}))
    with pytest.raises(ExtensionRefused, match="signature is not good"):
        workshop.loader().load("greet")


def test_without_trusted_keys_nothing_is_loaded(workshop: Workshop) -> None:
    workshop.signers.unlink()
    with pytest.raises(ExtensionRefused, match="no key is trusted here"):
        workshop.loader().load("greet")


def test_a_downgrade_is_refused_although_it_is_signed(workshop: Workshop) -> None:
    for version in ("1.9", "1.10"):
        workshop.put(CODE, version)
        workshop.loader().load("greet")
    workshop.put(CODE, "1.9")
    with pytest.raises(ExtensionRefused, match=r"1\.9 is a downgrade: 1\.10 was used here before"):
        workshop.loader().load("greet")


def test_another_module_under_a_known_version_is_refused(workshop: Workshop) -> None:
    workshop.loader().load("greet")
    workshop.put(CODE + "\n# changed\n", "1.0.0")
    with pytest.raises(ExtensionRefused, match="needs a higher version"):
        workshop.loader().load("greet")


@pytest.mark.parametrize(
    ("code", "message"),
    [("FUNCTIONS = (", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("FUNCTIONS = (1,)", "has no FUNCTIONS")],
)
def test_a_signed_but_broken_module_is_refused_with_the_reason(workshop: Workshop, code: str, message: str) -> None:
    workshop.put(code, "2.0")
    with pytest.raises(ExtensionRefused, match=message):
        workshop.loader().load("greet")


class Store:
    """The smallest datastore."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def keys(self, prefix: str) -> Sequence[str]:
        return [key for key in self.values if key.startswith(prefix)]


def test_a_module_comes_from_the_datastore_and_is_verified_alike(workshop: Workshop) -> None:
    store = Store()
    for path in workshop.modules.iterdir():
        store.values[f"modules/{path.name}"] = path.read_bytes()
    loader = workshop.loader(DatastoreSource(store))
    assert loader.names() == ["greet"]
    assert loader.load("greet") is not None
    store.values["modules/greet.py"] += b"\n"
    with pytest.raises(ExtensionRefused, match="altered"):
        loader.load("greet")


@pytest.fixture
def address(workshop: Workshop) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(workshop.modules))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_module_comes_from_a_url_and_is_verified_alike(workshop: Workshop, address: str) -> None:
    loader = workshop.loader(UrlSource(address))
    extension = loader.load("greet")
    assert extension is not None
    assert extension.origin == f"{address}/greet.py"
    assert loader.load("nosuch") is None
    workshop.file.write_text("FUNCTIONS = ()")
    with pytest.raises(ExtensionRefused, match="altered"):
        loader.load("greet")


def test_the_engine_applies_states_of_a_verified_module(workshop: Workshop) -> None:
    (workshop.tree / "init.sls").write_text("world:\n  greet.hello: []\n")
    catalogue = load_tree_catalogue(workshop.tree, workshop.signers, VersionHistory(workshop.seen))
    report = PlanExecution(build_plan(Tree(workshop.tree), ["init"], catalogue=catalogue), "ansible").execute()
    assert [(record.result, record.changes) for record in report.records] == [(True, {"greeting": "world"})]


def test_the_engine_refuses_the_whole_run_if_a_module_is_refused(workshop: Workshop) -> None:
    workshop.file.write_text("altered")
    with pytest.raises(RunRefused, match="altered after it was signed"):
        load_tree_catalogue(workshop.tree, workshop.signers, VersionHistory(workshop.seen))


def test_the_command_signs_verifies_and_lists(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.file.write_text(CODE + "# newer\n")
    assert rackwright("module", ["sign", str(workshop.file), "--version", "1.1", "--key", str(workshop.key)]) == 0
    assert rackwright("module", ["verify", str(workshop.file), *workshop.trust]) == 0
    assert "greet 1.1: good, signed by alice" in capsys.readouterr().out
    (workshop.modules / "bare.py").write_text(CODE)
    assert rackwright("module", ["list", str(workshop.tree), "--json", *workshop.trust]) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["modules"]}
    assert rows["greet"]["signer"] == "alice"
    assert "is not signed" in rows["bare"]["refused"]


def test_the_command_refuses_with_a_reason_and_status_2(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.file.write_text("altered")
    assert rackwright("module", ["verify", str(workshop.file), *workshop.trust]) == 2
    assert "altered after it was signed" in capsys.readouterr().err
    assert rackwright("module", ["sign", str(workshop.file), "--version", "one", "--key", str(workshop.key)]) == 2
    assert "'one' is no version" in capsys.readouterr().err
    assert rackwright("module", ["sign", str(workshop.file), "--version", "1", "--key", "/nonexistent"]) == 2
    assert "cannot be signed with /nonexistent" in capsys.readouterr().err
