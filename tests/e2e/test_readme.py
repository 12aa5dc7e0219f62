"""The README as a stranger reads it: a fresh clone, an empty HOME, a bare environment, its commands as written."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


READY = 'make setup >/dev/null\nexport PATH="$PWD/.venv/bin:$PATH"\nmkdir -p build\n'
"""What the first lines of the walk do."""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "home").mkdir()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "rackwright")], check=True)
    return folder


def run(clone: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone / "rackwright",
        env={"HOME": str(clone / "home"), "PATH": PATH, "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=8 * PATIENCE,
        check=False,
    )


def test_the_ten_minutes_go_as_the_readme_says(clone: Path) -> None:
    ended = run(clone, "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n" + "".join(blocks("sh walk")))
    said = f"{ended.stdout[-6000:]}\n{ended.stderr[-3000:]}"
    assert ended.returncode == 0, said
    assert "+ hello-server on n1.rack.example" in ended.stdout, said
    assert "ERROR hello-server on n1.rack.example: simulated failure" in ended.stdout, said
    assert "as expected" in ended.stdout, said
    assert "one greeter" in ended.stdout, said
    assert ended.stdout.rstrip().splitlines()[-1].endswith("ACTIVE"), said


def test_the_states_do_as_the_readme_says(clone: Path) -> None:
    ended = run(clone, READY + "".join(blocks("sh states")))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (clone / "rackwright/build/greeting").read_text() == "Hello\n"
    would, did = ended.stdout.index("1 changed in"), ended.stdout.rindex("1 changed in")
    assert would < did, ended.stdout
    assert "(dry run)" in ended.stdout.splitlines()[ended.stdout[:would].count("\n")]


def test_the_mesh_demo_does_as_the_readme_says(clone: Path) -> None:
    """With a prefix of its own, so that it meets no other demo of this machine."""
    ours = f"export RACKWRIGHT_MESH_DEMO_DIR={clone}/mesh RACKWRIGHT_MESH_DEMO_PREFIX=rwreadme\n"
    ending = "trap 'rackwright mesh demo down' EXIT\n"
    ended = run(clone, READY + ours + ending + "".join(blocks("sh mesh")))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("5 of 5 servers alive") >= 2
    assert not (clone / "mesh").exists()


def test_the_demo_goes_from_discovery_to_a_workload_and_ends(clone: Path) -> None:
    first = blocks("sh")[0].splitlines()[0].split("#")[0].strip()
    assert first == "make demo"
    ended = run(clone, f'{first} ARGS="--until-active --machines 4"')
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "log in as admin with the password" in ended.stdout
    assert "Everything is ACTIVE: 4 nodes" in ended.stdout


def test_every_page_the_readme_names_is_there() -> None:
    named = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert named
    assert [name for name in named if not name.startswith("http") and not (ROOT / name).exists()] == []
