"""The programs of sledgehammer, from Debian's packages, on a host that has none of their libraries.

The host's own copies are hidden in a mount namespace, as on a machine where they were never installed. A build that
takes libraries from its host fails there, and ships the host's versions anywhere else.
"""

import json
import subprocess
import sys
from pathlib import Path

from rackwright.provision.images.packages import Source, fetch_packages
from rackwright.provision.images.sledgehammer import PACKAGES, PROGRAMS, SUITE

HIDE_LIBRARIES = """
set -eu
work=$1; shift
mount -t tmpfs tmpfs "$work"
for folder in /usr/lib/*-linux-gnu; do
    upper=$work/$(basename "$folder")
    mkdir "$upper" "$upper.work"
    for pattern in 'libtom*' 'libfdisk*' 'libsmartcols*' 'libext2fs*' 'libe2p*' 'libblkid*' 'libwrap*'; do
        for library in "$folder"/$pattern; do
            if [ -e "$library" ]; then mknod "$upper/$(basename "$library")" c 0 0; fi
        done
    done
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$upper,workdir=$upper.work" "$folder"
done
exec "$@"
"""
"""A device 0:0 in the upper folder of an overlay is a file that is not there. Programs that are used here need none of
these libraries."""

LIST_LIBRARIES = """
import json, sys
from pathlib import Path
from rackwright.provision.images.tree import Tree
tree = Tree(Path(sys.argv[1]))
found = {program: {place: str(path) for place, path in tree.libraries(program).items()} for program in sys.argv[2:]}
json.dump(found, sys.stdout)
"""


def test_all_libraries_come_from_the_packages_on_a_host_that_has_none_of_them(tmp_path: Path) -> None:
    tree, work = tmp_path / "tree", tmp_path / "work"
    work.mkdir()
    fetch_packages(PACKAGES, Source(SUITE), tree, lambda _: None)
    listed = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE_LIBRARIES, "hide", str(work)),
            *(sys.executable, "-c", LIST_LIBRARIES, str(tree), *PROGRAMS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    libraries = json.loads(listed.stdout)
    assert "lib/libtomcrypt.so.1" in libraries["usr/sbin/dropbear"]
    paths = {path for found in libraries.values() for path in found.values()}
    assert {path for path in paths if not Path(path).is_relative_to(tree)} == set()
