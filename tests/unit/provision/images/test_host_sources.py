"""The host's package sources that an image is made from: of every file that apt reads, but of one release alone."""

import re
from pathlib import Path

import pytest

from rackwright.domain.architectures import Architecture
from rackwright.provision.images.host_sources import write_host_sources
from rackwright.provision.images.packages import BuildFailed, Source

STANZA = """\
# As a Debian is installed with.
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    return tmp_path / "apt"


def write(
    apt: Path, tmp_path: Path, suite: str = "bookworm", architecture: Architecture = Architecture.AMD64
) -> dict[str, str]:
    return {path.name: path.read_text() for path in write_host_sources(suite, tmp_path, architecture, apt)}


@pytest.mark.parametrize("name", ["debian.sources", "0000debian.sources", "mirror.sources"])
def test_a_stanza_is_found_whatever_its_file_is_called(apt: Path, tmp_path: Path, name: str) -> None:
    (apt / "sources.list.d" / name).write_text(STANZA)
    assert write(apt, tmp_path) == {
        "host.sources": "Types: deb\nUris: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main\nSigned-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
    }


@pytest.mark.parametrize("name", ["sources.list", "sources.list.d/debian.list", "sources.list.d/any.list"])
def test_a_line_is_found_whatever_its_file_is_called(apt: Path, tmp_path: Path, name: str) -> None:
    (apt / name).write_text(
        "# deb http://mirror.example/off bookworm main\n"
        "deb [signed-by=/a.gpg arch=amd64] http://mirror.example/debian bookworm main\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/security bookworm-security main contrib\n"
        "deb http://mirror.example/debian trixie main\n"
    )
    assert write(apt, tmp_path) == {
        "host.list": "deb [signed-by=/a.gpg arch=amd64] http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/security bookworm-security main contrib\n"
    }


def test_another_release_in_the_same_file_is_left_out(apt: Path, tmp_path: Path) -> None:
    """apt would take the newer of two versions, and the image would be neither of the two releases."""
    both = STANZA.replace("Suites: bookworm", "Suites: trixie bookworm")
    (apt / "sources.list.d/a.sources").write_text(f"{both}\n{STANZA.replace('bookworm', 'trixie')}")
    [text] = write(apt, tmp_path, "trixie").values()
    assert [line for line in text.splitlines() if line.startswith("Suites:")] == [
        "Suites: trixie",
        "Suites: trixie trixie-updates",
    ]


def test_what_apt_does_not_read_is_not_taken(apt: Path, tmp_path: Path) -> None:
    (apt / "sources.list.d/a.sources").write_text(f"Enabled: no\n{STANZA}")
    (apt / "sources.list.d/b.sources.disabled").write_text(STANZA)
    (apt / "sources.list.d/c.sources").write_text(STANZA.replace("deb deb-src", "deb-src"))
    assert write(apt, tmp_path) == {}


def test_a_debian_that_the_host_does_not_have_is_taken_from_where_its_own_comes_from(apt: Path, tmp_path: Path) -> None:
    of_others = STANZA.replace("Components: main", "Components: stable")
    (apt / "sources.list.d/a.sources").write_text(f"{STANZA}\n{of_others}")
    (apt / "sources.list").write_text(
        "deb [signed-by=/bookworm.gpg] http://mirror.example/bookworm/security bookworm-security main\n"
        "deb http://mirror.example/others bookworm stable\n"
    )
    assert write(apt, tmp_path, "trixie") == {
        "host.list": "deb [signed-by=/bookworm.gpg] http://mirror.example/bookworm/security trixie-security main\n",
        "host.sources": "Types: deb\nUris: http://mirror.example/debian\nSuites: trixie trixie-updates\n"
        "Components: main\nSigned-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
    }


def test_nothing_is_derived_for_what_is_no_debian(apt: Path, tmp_path: Path) -> None:
    (apt / "sources.list.d/a.sources").write_text(STANZA)
    assert write(apt, tmp_path, "noble") == {}


def test_a_release_that_the_host_does_not_have_is_asked_for_a_mirror(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"do not have nosuch\. Name a mirror that does: --mirror URL"):
        Source("nosuch").arguments(tmp_path)
    assert Source("nosuch", "http://mirror.example/x", ("main", "more")).arguments(tmp_path) == [
        "deb http://mirror.example/x nosuch main more"
    ]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("[arch=amd64] ", " "),
        ("[ arch=amd64,i386 ] ", " "),
        ("[arch=amd64 signed-by=/a.gpg] ", " [ signed-by=/a.gpg] "),
        ("[signed-by=/a.gpg arch=amd64] ", " [signed-by=/a.gpg ] "),
        ("[arch=amd64,arm64] ", " [arch=amd64,arm64] "),
        ("[signed-by=/a/arch.gpg] ", " [signed-by=/a/arch.gpg] "),
        ("", " "),
    ],
)
def test_a_line_that_is_limited_to_what_this_host_is_serves_other_machines_all_the_same(
    apt: Path, tmp_path: Path, options: str, left: str
) -> None:
    (apt / "sources.list").write_text(f"deb {options}http://mirror.example/debian bookworm main\n")
    [line] = write(apt, tmp_path, architecture=Architecture.ARM64).values()
    assert re.sub(" +", " ", line) == f"deb{left}http://mirror.example/debian bookworm main\n"
    assert write(apt, tmp_path) == {"host.list": f"deb {options}http://mirror.example/debian bookworm main\n"}


@pytest.mark.parametrize(
    ("limit", "stays"),
    [
        ("Architectures: amd64\n", False),
        ("Architectures:\n amd64\n i386\n", False),
        ("Architectures: amd64 arm64\n", True),
    ],
)
def test_a_stanza_that_is_limited_to_what_this_host_is_serves_other_machines_all_the_same(
    apt: Path, tmp_path: Path, limit: str, stays: bool
) -> None:
    (apt / "sources.list.d/debian.sources").write_text(STANZA.rstrip() + f"\n{limit}")
    [text] = write(apt, tmp_path, architecture=Architecture.ARM64).values()
    assert ("Architectures" in text) is stays
    assert ("i386" in text) is False
    assert "Components: main\n" in text
    [text] = write(apt, tmp_path).values()
    assert "Architectures" in text
