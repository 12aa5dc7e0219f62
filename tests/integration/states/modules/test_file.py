"""`file`: real files with real owners and modes."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.running.execution import PlanExecution as EngineRun

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners can only be given by root")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    tree = tmp_path / "tree"
    tree.mkdir()
    return Run(root=tree)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_managed_writes_content_owner_and_mode(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "motd"
    result = run.apply("file.managed", name=str(path), contents="hello", user="nobody", group="daemon", mode="0640")
    assert path.read_text() == "hello\n"
    assert (path.owner(), path.group(), mode(path)) == ("nobody", "daemon", 0o640)
    assert result.changes["mode"] == "0640"


def test_managed_says_the_change_as_a_diff_that_patch_takes(run: Run, tmp_path: Path) -> None:
    path, copy = tmp_path / "hosts", tmp_path / "copy"
    for one in (path, copy):
        one.write_text("a\nb\nc\nlast without newline")
    diff = run.apply("file.managed", name=str(path), contents=["a", "B", "c", "d"]).changes["diff"]
    assert "-b\n+B\n" in diff
    subprocess.run(["patch", "--quiet", str(copy)], input=diff.encode(), check=True)
    assert copy.read_bytes() == path.read_bytes()


def test_dry_run_touches_nothing_and_says_what_would_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    check = run.check("file.managed", name=str(path), contents="x", makedirs=True, user="user-made-by-another-state")
    assert check.changes["diff"].endswith("+x\n")
    assert check.changes["user"] == "user-made-by-another-state"
    assert not path.parent.exists()


def test_unknown_user_fails_a_real_run_and_says_what_to_do(run: Run, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"no user 'nosuchuser'.*user\.present"):
        run.apply("file.managed", name=str(tmp_path / "x"), contents="x", user="nosuchuser")


def test_owner_and_mode_of_an_existing_file_stay_when_not_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    os.chown(path, 65534, 1)
    path.chmod(0o4750)
    run.apply("file.managed", name=str(path), contents="new")
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (65534, 1, 0o4750)


def test_only_the_mode_changes_if_only_the_mode_differs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "same"
    path.write_text("same\n")
    path.chmod(0o666)
    inode = path.stat().st_ino
    assert run.apply("file.managed", name=str(path), contents="same", mode="600").changes == {"mode": "0600"}
    assert path.stat().st_ino == inode


def test_source_is_rendered_with_variables_defaults_and_context(run: Run, tmp_path: Path) -> None:
    run.variables = {"site": "berlin", "port": 1}
    (run.root / "app.conf").write_text("{{ site }}:{{ port }}:{{ level }}\n{% include 'tail.j2' %}")
    (run.root / "tail.j2").write_text("tail {{ site }}")
    path = tmp_path / "app.conf"
    arguments = {"source": "salt://app.conf", "template": "jinja", "defaults": {"port": 2, "level": "low"}}
    run.apply("file.managed", name=str(path), context={"level": "high"}, **arguments)
    assert path.read_text() == "berlin:2:high\ntail berlin"


def test_a_template_has_the_names_of_state_files_and_keep_the_mode_of_its_source(run: Run, tmp_path: Path) -> None:
    run.variables = {"app": {"port": 80}}
    source = run.root / "script.sh"
    source.write_text("{{ pillar.app.port }} {{ salt['pillar.get']('app:name', 'none') }} {{ grains.kernel }}\n")
    source.chmod(0o750)
    run.apply("file.managed", name=str(tmp_path / "x"), source="script.sh", template="jinja", mode="keep")
    assert (tmp_path / "x").read_text() == "80 none Linux\n"
    assert mode(tmp_path / "x") == 0o750


def test_no_state_writes_over_what_it_reads(run: Run, tmp_path: Path) -> None:
    template, folder, alias = run.root / "app.conf", run.root / "files", tmp_path / "alias"
    template.write_text("{{ grains.id }}\n")
    (folder / "below").mkdir(parents=True)
    (folder / "one").write_text("1\n")
    alias.symlink_to(template)
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("file.managed", {"name": str(template), "source": str(template), "template": "jinja"}, "same file"),
        ("file.managed", {"name": str(template), "source": "salt://app.conf", "template": "jinja"}, "same file"),
        ("file.managed", {"name": str(alias), "source": "app.conf", "template": "jinja"}, "same file"),
        ("file.append", {"name": str(template), "source": "app.conf"}, "appended to itself"),
        ("file.append", {"name": str(alias), "source": "app.conf", "template": "jinja"}, "appended to itself"),
        ("file.recurse", {"name": str(folder), "source": "files", "template": "jinja"}, "in its own source"),
        ("file.recurse", {"name": str(folder / "below"), "source": "files"}, "in its own source"),
        ("file.recurse", {"name": str(run.root), "source": "files", "clean": True}, "clean would remove the source"),
        ("file.symlink", {"name": str(template), "target": "app.conf", "force": True}, "is the link itself"),
    ]
    for function, arguments, why in refused:
        with pytest.raises(StateError, match=why):
            run.apply(function, **arguments)
    assert template.read_text() == "{{ grains.id }}\n"
    assert sorted(path.name for path in folder.rglob("*")) == ["below", "one"]
    # What reads and writes the same text changes nothing, and a link of its own is no template.
    run.apply("file.managed", name=str(template), source="app.conf", mode="0600")
    run.apply("file.managed", name=str(alias), source="app.conf", template="jinja", follow_symlinks=False)
    assert (template.read_text(), alias.read_text()) == ("{{ grains.id }}\n", "me\n")


def test_an_undefined_name_in_a_template_fails_and_leaves_the_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "app.conf"
    path.write_text("old")
    (run.root / "app.conf").write_text("{{ prot }}")
    with pytest.raises(StateError, match=r"app\.conf: 'prot' is undefined"):
        run.apply("file.managed", name=str(path), source="app.conf", template="jinja")
    assert path.read_text() == "old"


def test_a_source_cannot_lead_out_of_the_tree(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (run.root / "link").symlink_to(tmp_path / "secret")
    for source in ("../secret", "salt://../secret", "link"):
        with pytest.raises(StateError, match="out of the state tree"):
            run.apply("file.managed", name=str(tmp_path / "stolen"), source=source)


def test_a_source_with_another_hash_is_refused(run: Run, tmp_path: Path) -> None:
    (run.root / "tool").write_text("altered")
    with pytest.raises(StateError, match="not what was asked for"):
        run.apply("file.managed", name=str(tmp_path / "tool"), source="tool", source_hash="sha256=" + "0" * 64)
    assert not (tmp_path / "tool").exists()


def test_a_misspelt_source_names_the_near_one(run: Run, tmp_path: Path) -> None:
    (run.root / "nginx.conf").write_text("x")
    with pytest.raises(StateError, match=r"did you mean 'nginx\.conf'"):
        run.apply("file.managed", name=str(tmp_path / "x"), source="nginx.cnf")


def test_hidden_changes_stay_out_of_the_result(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "key"
    result = run.apply("file.managed", name=str(path), contents="hunter2", mode="0600", show_changes=False)
    assert "hunter2" not in repr(result)
    assert path.read_text() == "hunter2\n"


def test_backup_keeps_the_old_file_with_its_owner(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text("old")
    os.chown(path, 65534, 65534)
    run.apply("file.managed", name=str(path), contents="new", backup=".bak")
    kept = tmp_path / "conf.bak"
    assert (kept.read_text(), kept.stat().st_uid) == ("old", 65534)


def test_check_cmd_refuses_a_bad_file_before_it_is_in_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sudoers"
    path.write_text("good\n")
    with pytest.raises(StateError, match="check_cmd 'grep -q good' refused"):
        run.apply("file.managed", name=str(path), contents="bad", check_cmd="grep -q good")
    assert path.read_text() == "good\n"
    run.apply("file.managed", name=str(path), contents="still good", check_cmd="grep -q good")


def test_check_cmd_of_a_state_file_is_the_functions_own(tmp_path: Path) -> None:
    path = tmp_path / "sudoers"
    path.write_text("good\n")
    (tmp_path / "x.sls").write_text(f"{path}:\n  file.managed:\n    - contents: bad\n    - check_cmd: grep -q good\n")
    (record,) = EngineRun(build_plan(*locate_tree(tmp_path / "x.sls")), "ansible").execute().records
    assert "check_cmd 'grep -q good' refused the new" in record.comment
    assert path.read_text() == "good\n"


def test_a_link_is_followed_and_stays_a_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    run.apply("file.managed", name=str(tmp_path / "link"), contents="new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new\n"


def test_replace_false_keeps_content_and_create_false_keeps_absence(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "seeded"
    run.apply("file.managed", name=str(path), contents="seed", replace=False)
    path.write_text("edited by a person")
    assert run.apply("file.managed", name=str(path), contents="seed", replace=False).changes == {}
    run.apply("file.managed", name=str(tmp_path / "none"), contents="x", create=False)
    assert not (tmp_path / "none").exists()


WRITER = """
import sys, os
from pathlib import Path
from typing import Any
from rackwright.states.support import files
real = os.write
def slow(descriptor, chunk):
    done = real(descriptor, bytes(chunk[:4096]))
    print("wrote", flush=True)
    sys.stdin.readline()
    return done
files.os.write = slow
files.write_whole(sys.argv[1], b"n" * 1_000_000, files.Owner(mode=0o644))
"""


def test_kill_in_the_middle_of_a_write_leaves_the_old_file_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("old")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "wrote\n"
    aside = tmp_path / ".precious.rackwright-new"
    assert aside.stat().st_size == 4096
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert path.read_text() == "old"
    run.apply("file.managed", name=str(path), contents="finished")
    assert path.read_text() == "finished\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["precious", "tree"], (
        "the half-written file is used up"
    )


def test_a_link_laid_in_place_of_the_file_aside_is_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / ".conf.rackwright-new").symlink_to(tmp_path / "victim")
    run.apply("file.managed", name=str(tmp_path / "conf"), contents="x")
    assert (tmp_path / "victim").read_text() == "untouched"


def test_directory_sets_owner_and_mode_below_it(run: Run, tmp_path: Path) -> None:
    top = tmp_path / "srv"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "file").write_text("x")
    arguments = {"user": "nobody", "dir_mode": "0750", "file_mode": "0640", "recurse": ["user", "mode"]}
    changes = run.apply("file.directory", name=str(top), **arguments).changes
    assert set(changes) == {str(top), str(top / "sub"), str(top / "sub" / "file")}
    assert (top / "sub" / "file").owner() == "nobody"
    assert (mode(top / "sub"), mode(top / "sub" / "file")) == (0o750, 0o640)


def test_directory_without_parents_says_to_make_them(run: Run, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="makedirs: true"):
        run.apply("file.directory", name=str(tmp_path / "a" / "b"))
    run.apply("file.directory", name=str(tmp_path / "a" / "b"), makedirs=True, mode="0700")
    assert mode(tmp_path / "a" / "b") == 0o700


def test_directory_replaces_a_file_only_by_force(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    path.write_text("x")
    with pytest.raises(StateError, match="force: true"):
        run.apply("file.directory", name=str(path))
    run.apply("file.directory", name=str(path), backupname="thing.old")
    assert path.is_dir()
    assert (tmp_path / "thing.old").read_text() == "x"


def test_absent_removes_a_folder_but_not_what_a_link_points_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("x")
    (tmp_path / "link").symlink_to("keep")
    run.apply("file.absent", name=str(tmp_path / "link"))
    assert (tmp_path / "keep" / "file").exists()
    run.apply("file.absent", name=str(tmp_path / "keep"))
    assert not (tmp_path / "keep").exists()


def test_symlink_changes_its_target_and_its_owner(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "current"
    run.apply("file.symlink", name=str(path), target="release-1")
    run.apply("file.symlink", name=str(path), target="release-2", user="nobody")
    assert os.readlink(path) == "release-2"
    assert path.lstat().st_uid == 65534


def test_append_adds_only_what_is_missing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_text("export A=1\nexport   B=2")
    changes = run.apply("file.append", name=str(path), text=["export B=2", "export C=3"]).changes
    assert path.read_text() == "export A=1\nexport   B=2\nexport C=3\n"
    assert "+export C=3\n" in changes["diff"]


def test_append_wants_whole_lines(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("one-hundred\n")
    run.apply("file.append", name=str(path), text="one")
    assert path.read_text() == "one-hundred\none\n"


def test_replace_uses_groups_and_appends_if_nothing_matched(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sshd_config"
    path.write_text("#Port 22\nUsePAM yes\n")
    run.apply("file.replace", name=str(path), pattern=r"^#?(Port) .*$", repl=r"\1 2222")
    assert path.read_text() == "Port 2222\nUsePAM yes\n"
    run.apply("file.replace", name=str(path), pattern="^Banner .*", repl="Banner none", append_if_not_found=True)
    assert path.read_text().endswith("UsePAM yes\nBanner none\n")


def test_recurse_copies_a_tree_and_cleans_what_is_not_in_it(run: Run, tmp_path: Path) -> None:
    site, target = run.root / "site", tmp_path / "www"
    (site / "css").mkdir(parents=True)
    (site / "index.html").write_text("hi {{ who }}")
    (site / "css" / "a.css").write_text("a")
    (site / "draft.md").write_text("d")
    (target / "old" / "deep").mkdir(parents=True)
    (target / "upload").mkdir()
    (target / "upload" / "photo").write_text("kept")
    result = run.apply(
        "file.recurse",
        name=str(target),
        source="salt://site",
        template="jinja",
        context={"who": "you"},
        exclude_pat=["*.md", "E@^upload/"],
        clean=True,
        file_mode="0604",
        dir_mode="0705",
        user="nobody",
    )
    paths = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert paths == ["css", "css/a.css", "index.html", "upload", "upload/photo"]
    assert (target / "index.html").read_text() == "hi you"
    assert (mode(target / "css" / "a.css"), mode(target / "css")) == (0o604, 0o705)
    assert result.changes["removed"] == [str(target / "old")]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("file.managed", {"name": "relative"}, "no absolute path"),
        ("file.managed", {"name": "/x", "contents": "a", "source": "b"}, "both given"),
        ("file.absent", {"name": "/../"}, "root of the file system"),
        ("file.replace", {"name": "/x", "pattern": "(", "repl": ""}, "unterminated subpattern"),
        ("file.replace", {"name": "/x", "pattern": "a", "repl": "", "flags": ["NOSUCH"]}, "no such flag NOSUCH"),
        ("file.append", {"name": "/x"}, "either text or source"),
        ("file.directory", {"name": "/x", "recurse": ["usr"]}, "no such thing as usr"),
        ("file.symlink", {"name": "/x", "target": "/y", "backupname": "a/b"}, "without a slash"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    run: Run, function: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(StateError, match=message):
        run.check(function, **arguments)
