"""`rackwright image` as a person uses it, with the server of the home there and away."""

import shutil
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
