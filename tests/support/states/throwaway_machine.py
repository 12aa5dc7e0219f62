"""A machine to break: this one's files under an overlay, with namespaces and a systemd of its own as process 1.

Everything in it (packages, units, crontabs) is real, and gone when it ends. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import PATIENCE, wait_until

REPOSITORY = Path(__file__).parents[3]

SCRIPT = r"""
set -eu
base=$1
mount --make-rprivate /
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for device in null zero random urandom; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t sysfs -o ro sysfs sys
if [ -d /sys/fs/cgroup/systemd ]; then
    mount -t tmpfs tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
# What lies on other file systems is not below the overlay: the program under test and what the test brings.
shift
for path in "$@"; do
    mkdir -p ".$path"
    mount --bind "$path" ".$path"
    mount -o remount,bind,ro ".$path"
done
# Only what a test starts is to run in it.
rm -f etc/systemd/system/*.wants/* etc/rc?.d/*
printf '[Unit]\nDefaultDependencies=no\n' > etc/systemd/system/rackwright-test.target
export container=rackwright
exec chroot . /lib/systemd/systemd --system --unit=rackwright-test.target --log-target=null --show-status=0
"""


class Machine:
    """A running throw-away machine."""

    def __init__(self, init: int) -> None:
        self._init = init

    def command(self, *words: str) -> list[str]:
        spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--root"]
        return ["nsenter", f"--target={self._init}", *spaces, *words]

    def run(self, *words: str, stdin: str = "") -> str:
        """Run a program in it; its output. A failure is an AssertionError that shows what was said."""
        done = subprocess.run(self.command(*words), input=stdin, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{words}: {done.stderr or done.stdout}"
        return done.stdout

    def write(self, path: str, text: str, mode: str = "644") -> None:
        self.run("sh", "-c", 'cat > "$0" && chmod "$1" "$0"', path, mode, stdin=text)

    def ready(self) -> bool:
        return subprocess.run(self.command("systemctl", "show"), capture_output=True).returncode == 0


@contextlib.contextmanager
def machine(*shared: Path) -> Iterator[Machine]:
    """Start one. It can read this repository, its interpreter and the `shared` folders."""
    folders = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *shared} - {Path("/usr")}
    hierarchy = Path("/sys/fs/cgroup/systemd") if Path("/sys/fs/cgroup/systemd").is_dir() else Path("/sys/fs/cgroup")
    group = hierarchy / f"rackwright-test-{os.getpid()}"
    group.mkdir()
    spaces = ["--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup", "--kill-child"]
    with tempfile.TemporaryDirectory(prefix="rackwright-machine-") as base:
        enter = 'echo $$ > "$0/cgroup.procs" && exec setpriv --pdeathsig KILL unshare "$@"'
        started = subprocess.Popen(
            [
                "sh",
                "-c",
                enter,
                str(group),
                *spaces,
                "sh",
                "-c",
                SCRIPT,
                "sh",
                base,
                *sorted(str(folder) for folder in folders),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield _wait(started)
        finally:
            with contextlib.suppress(ProcessLookupError):
                started.send_signal(signal.SIGKILL)
            started.communicate()
            _remove(group)


def _wait(started: subprocess.Popen[str]) -> Machine:
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")

    def answering() -> Machine | None:
        assert started.poll() is None, f"the machine did not start: {started.communicate()[1]}"
        found = children.read_text().split()
        return Machine(int(found[0])) if found and Machine(int(found[0])).ready() else None

    machine = wait_until(answering, "the systemd of the machine answers", every=0.1)
    assert machine is not None
    return machine


def _remove(group: Path) -> None:
    """A control group can be removed when the last process in it is gone."""

    def removed() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not group.exists()

    wait_until(removed, f"{group} is removed")
