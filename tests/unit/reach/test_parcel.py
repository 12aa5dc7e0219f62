"""The parcel of a run: what is in it, and what is refused before it is sent to a node."""

import io
import tarfile
from pathlib import Path

import pytest

from rackwright.domain.runs import Run
from rackwright.reach.parcel import BadParcel, NodeFolders, pack

RUN = Run(3, 2, 1, "n1", "web", "script", "script", {"a": "secret-value"}, deadline=60, trace="t")


def test_a_parcel_is_an_archive_that_any_tar_reads(tmp_path: Path) -> None:
    (tmp_path / "10-a.sh").write_text("true\n")
    parcel = pack(RUN, [tmp_path / "10-a.sh"], NodeFolders(), "abc")
    with tarfile.open(fileobj=io.BytesIO(parcel.archive)) as archive:
        names = {entry.name: entry.mode for entry in archive}
    assert names["scripts/10-a.sh"] == 0o700
    assert names["attrs.json"] == 0o600
    assert {"bin/read_attribute", "bin/write_attribute", "lib/supervise", "lib/run", "index", "written"} <= set(names)


def test_no_attribute_is_in_the_command(tmp_path: Path) -> None:
    """A command line can be seen by every process of the node."""
    (tmp_path / "a.sh").write_text("true\n")
    assert "secret-value" not in pack(RUN, [tmp_path / "a.sh"], NodeFolders(), "abc").command


@pytest.mark.parametrize("name", ["a b.sh", "-x.sh", "a;b.sh", ".hidden.sh", "ä.sh"])
def test_a_script_with_an_unsafe_name_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("true\n")
    with pytest.raises(BadParcel, match="has an unsafe name"):
        pack(RUN, [tmp_path / name], NodeFolders(), "abc")


def test_two_scripts_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "a.sh" for folder in ("x", "y")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("true\n")
    with pytest.raises(BadParcel, match="the same name"):
        pack(RUN, paths, NodeFolders(), "abc")


@pytest.mark.parametrize("folder", ["relative", "/a b", "/a;rm", "/a'b", "", "/"])
def test_a_folder_that_a_shell_could_misread_is_refused(folder: str) -> None:
    with pytest.raises(BadParcel):
        NodeFolders(work=folder)
