"""`rackwright image` as a person uses it, with the server of the home there and away."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.machines.root_trees import make_root_tree, pack_tree
from tests.support.servers.command_line import Cli, served

NODE = "a.example.com"


def _import(cli: Cli, folder: Path, name: str) -> None:
    if not (folder / "root.tar").exists():
        pack_tree(make_root_tree(folder / "tree", size=50_000), folder / "root.tar")
    cli.ok("image", "import", name, str(folder / "root.tar"))


def test_images_are_imported_shown_and_deleted(tmp_path: Path) -> None:
    with served(tmp_path / "home") as cli:
        _import(cli, tmp_path, "debian-12")
        _import(cli, tmp_path, "web")
        listed = {image["name"]: image for image in cli.json("image", "list")}
        assert listed["web"]["shared"] == listed["web"]["size"], "it is the same, so it is there once"
        cli.ok("node", "create", NODE)
        cli.ok("deployment", "create", "web")
        cli.ok("node", "bind", NODE, "provisioner-os-install", "web")
        shown = cli.json("image", "show", "debian-12")
        assert shown["nodes"] == [{"node": NODE, "use": "planned"}]
        assert [file["name"] for file in shown["files"]] == ["root.tar.zst"]
        assert "Trial Linux 1" in cli.ok("image", "list").out
        refused = cli("image", "delete", "debian-12", "--yes")
        assert (refused.code, NODE in refused.err) == (4, True)
        cli.ok("image", "delete", "web", "--yes")
        cli.ok("image", "delete", "debian-12", "--yes", "--force")
        assert cli.json("image", "list") == []
        assert not [path for path in (tmp_path / "home/images/chunks").rglob("*") if path.is_file()]


def test_without_a_server_nobody_knows_who_uses_an_image(tmp_path: Path) -> None:
    cli = Cli("http://127.0.0.1:1", tmp_path / "home")
    _import(cli, tmp_path, "web")
    assert cli.json("image", "list")[0]["nodes"] is None
    assert cli("image", "delete", "web", "--yes").code == 6
    cli.ok("image", "delete", "web", "--yes", "--force")
    shutil.rmtree(tmp_path / "home")


def test_no_system_is_built_for_machines_that_none_is_installed_on(tmp_path: Path) -> None:
    cli = Cli("http://127.0.0.1:1", tmp_path / "home")
    refused = cli("image", "build", "debian-12", "--architecture", "arm64")
    assert refused.code == 2
    assert "Nothing is installed on arm64 machines yet" in refused.err
    assert "rackwright image build sledgehammer --architecture arm64" in refused.err
    assert "'riscv64'" in cli("image", "build", "sledgehammer", "--architecture", "riscv64").err
    assert not (tmp_path / "home" / "images").exists()


TERMINATED = """
import os, signal
from rackwright.cli.main import main
from rackwright.provision.images import root_images
root_images.check_bootable = lambda facts: os.kill(os.getpid(), signal.SIGTERM)
main()
"""


def test_an_import_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    archive = pack_tree(make_root_tree(tmp_path / "tree", size=50_000), tmp_path / "root.tar")
    command = [
        sys.executable,
        "-c",
        TERMINATED,
        "image",
        "import",
        "web",
        str(archive),
        "--home",
        str(tmp_path / "home"),
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    assert subprocess.run(command, env=environment, check=False).returncode == 128 + signal.SIGTERM
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in (tmp_path / "home/images").rglob("*") if not path.is_dir()] == [".lock"]
    assert [path.name for path in (tmp_path / "home/images").iterdir() if path.name.startswith(".web")] == []
