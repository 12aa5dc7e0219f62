"""Sources of states with real git repositories and real signatures."""

import subprocess
from pathlib import Path

import pytest
from tests.support.programs import make_ssh_key

from rackwright.states.reading import sources
from rackwright.states.reading.sources import Folder, Repository, SourceRefused, pin_states


class Origin:
    """A real repository that people push to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        settings = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *settings, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: dict[str, str], key: Path | None = None) -> str:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        signing = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key}"] if key else []
        self.git(*signing, "commit", "--quiet", "-m", "x", *(["-S"] if key else []))
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_each_environment_has_its_branch_or_tag(origin: Origin, cache: Path) -> None:
    first = origin.commit({"top.sls": "one"})
    origin.git("tag", "v1")
    second = origin.commit({"top.sls": "two", "web/init.sls": "w"})
    repository = Repository(str(origin.folder), {"production": "v1", "base": "main"})
    with pin_states([repository], "production", cache) as tree:
        assert (tree.path / "top.sls").read_text() == "one"
        assert tree.pins[0].commit == first
    with pin_states([repository], "base", cache) as tree:
        assert (tree.path / "web/init.sls").read_text() == "w"
        assert tree.pins[0].commit == second
    with pin_states([repository], "main", cache) as tree:
        assert tree.pins[0].commit == second


def test_the_tree_of_a_run_stays_while_the_branch_moves(origin: Origin, cache: Path) -> None:
    origin.commit({"top.sls": "one"})
    repository = Repository(str(origin.folder))
    with pin_states([repository], "main", cache) as tree:
        origin.commit({"top.sls": "two"})
        with pin_states([repository], "main", cache) as later:
            assert (later.path / "top.sls").read_text() == "two"
        assert (tree.path / "top.sls").read_text() == "one"


def test_a_removed_file_is_not_in_the_next_tree(origin: Origin, cache: Path) -> None:
    origin.commit({"a.sls": "a", "b.sls": "b"})
    repository = Repository(str(origin.folder))
    with pin_states([repository], "main", cache):
        pass
    (origin.folder / "b.sls").unlink()
    origin.commit({})
    with pin_states([repository], "main", cache) as tree:
        assert sorted(path.name for path in tree.path.iterdir()) == ["a.sls"]


def test_of_several_repositories_the_first_wins(tmp_path: Path, cache: Path) -> None:
    ours, theirs = Origin(tmp_path / "ours"), Origin(tmp_path / "theirs")
    ours.commit({"ssh.sls": "ours"})
    theirs.commit({"states/ssh.sls": "theirs", "states/ntp.sls": "theirs", "README": "r"})
    repositories = [Repository(str(ours.folder)), Repository(str(theirs.folder), subfolder="states")]
    with pin_states(repositories, "main", cache) as tree:
        texts = {path.name: path.read_text() for path in tree.path.iterdir()}
    assert texts == {"ssh.sls": "ours", "ntp.sls": "theirs"}


def test_a_missing_branch_names_those_there_are(origin: Origin, cache: Path) -> None:
    origin.commit({"a": "a"})
    with (
        pytest.raises(SourceRefused, match="no branch or tag 'prod' for the environment 'prod'; it has main"),
        pin_states([Repository(str(origin.folder))], "prod", cache),
    ):
        pass


def test_a_signed_commit_of_a_known_key_is_used_and_its_signer_told(
    origin: Origin, cache: Path, tmp_path: Path
) -> None:
    key = make_ssh_key(tmp_path / "key")
    signers = tmp_path / "signers"
    signers.write_text(f"alice@example.org {Path(f'{key}.pub').read_text()}")
    origin.commit({"a": "a"}, key)
    with pin_states([Repository(str(origin.folder), signers=signers)], "main", cache) as tree:
        assert tree.pins[0].signer == "alice@example.org"


@pytest.mark.parametrize("signed", [False, True])
def test_an_unsigned_commit_or_an_unknown_key_is_refused(
    origin: Origin, cache: Path, tmp_path: Path, signed: bool
) -> None:
    signers = tmp_path / "signers"
    key = make_ssh_key(tmp_path / "key")
    signers.write_text(f"alice {Path(f'{key}.pub').read_text()}")
    origin.commit({"a": "a"}, make_ssh_key(tmp_path / "mallory") if signed else None)
    with (
        pytest.raises(SourceRefused, match="is not signed by a key that"),
        pin_states([Repository(str(origin.folder), signers=signers)], "main", cache),
    ):
        pass
    assert not (cache / "trees").exists(), "nothing of it is laid out"


def test_what_was_fetched_serves_while_the_origin_is_away(origin: Origin, cache: Path, tmp_path: Path) -> None:
    origin.commit({"a": "a"})
    repository = Repository(str(origin.folder))
    with pin_states([repository], "main", cache):
        pass
    origin.folder.rename(tmp_path / "away")
    with pytest.raises(SourceRefused, match=r"git fetch of .* failed"), pin_states([repository], "main", cache):
        pass
    with pin_states([repository], "main", cache, fetch=False) as tree:
        assert (tree.path / "a").exists()


def test_old_trees_are_forgotten_but_not_one_in_use(
    origin: Origin, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "KEPT_TREES", 2)
    repository = Repository(str(origin.folder))
    origin.commit({"a": "first"})
    with pin_states([repository], "main", cache) as held:
        for number in range(4):
            origin.commit({"a": str(number)})
            with pin_states([repository], "main", cache):
                pass
        assert (held.path / "a").read_text() == "first"
        assert len([path for path in (cache / "trees").iterdir() if path.is_dir()]) == 3


def test_a_plain_folder_works_too(tmp_path: Path) -> None:
    with pin_states(Folder(tmp_path), "anything") as tree:
        assert (tree.path, tree.pins) == (tmp_path, ())
    with pytest.raises(SourceRefused, match="there is no folder"), pin_states(Folder(tmp_path / "no"), "x"):
        pass


@pytest.mark.parametrize(
    ("repository", "environment"),
    [
        (Repository("--upload-pack=touch /tmp/x"), "main"),
        (Repository("/x", subfolder="../.."), "main"),
        (Repository("https://me:hunter2@example.org/x"), "main"),
        (Repository("/x"), "--all"),
        (Repository("ext::sh -c true"), "main"),
    ],
)
def test_addresses_and_names_that_are_tricks_are_refused(repository: Repository, environment: str, cache: Path) -> None:
    with pytest.raises(SourceRefused) as refused, pin_states([repository], environment, cache):
        pass
    assert "hunter2" not in str(refused.value)
