"""The order of an install's steps: what has to be settled before the first write, and what makes an install fail. The
installer's own lines in busybox's shell; what would touch disks is replaced by words."""

import io
import subprocess
import tarfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import pytest

AGENT = files("rackwright.provision.images") / "agent"
PARTS = ("common", "install", "wipes", "storage", "download", "configure", "bootloader", "bootloader_bios")
PREAMBLE = """
mount -t tmpfs tmpfs /run
mkdir /run/bin
busybox --install -s /run/bin
PATH=/run/bin
"""
STAND_INS = """
say() { :; }
sleep() { :; }
give_up() { echo "gave up: $*"; exit 9; }
disks() { :; }
for step in load_tools check_wipes check_disks partition download configure boot_loader unmount reboot; do
    eval "$step() { echo $step; }"
done
carefully() { "$2"; }
answer_with() { echo "wget: server returned error: HTTP/1.1 $1" >/run/answer.error; }
"""


def run_agent(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    lines = (line for part in PARTS for line in (AGENT / part).read_text().splitlines(True))
    agent = "".join(line for line in lines if not line.startswith("for part in"))
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "busybox", "sh", "-s", str(folder)],
        input=PREAMBLE + agent + STAND_INS + script,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SERVER = """
asked=0
ask() {
    case $1 in
    */config) printf '/storage/tools\\tp\\ttrue\\n' >/run/answer ;;
    */progress)
        case $2 in
        *partition*)
            asked=$((asked + 1))
            refuse_partition $asked || return 1
            ;;
        esac
        ;;
    */result) echo "result: $2" ;;
    esac
}
"""


def test_nothing_is_written_for_an_install_that_the_server_gave_up(tmp_path: Path) -> None:
    gone = "refuse_partition() { answer_with '409 Conflict'; return 1; }\ninstall_system\n"
    done = run_agent(tmp_path, SERVER + gone)
    assert done.returncode == 9, done.stderr
    steps = ["load_tools", "check_wipes", "check_disks"]
    assert done.stdout.splitlines() == [*steps, "gave up: the server refuses this install; nothing was written"]


def test_a_server_that_is_away_is_waited_for_before_the_first_write(tmp_path: Path) -> None:
    away = "refuse_partition() { [ $1 -ge 3 ] || { answer_with '502 Bad Gateway'; return 1; }; }\ninstall_system\n"
    done = run_agent(tmp_path, SERVER + away)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:7] == [
        *("load_tools", "check_wipes", "check_disks"),
        *("partition", "download", "configure", "boot_loader"),
    ]


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_an_image_for_another_processor_is_written_nowhere(tmp_path: Path, machine: str) -> None:
    config = f"uname() {{ echo {machine}; }}\ncheck_wipes() {{ :; }}\nlook_at_disks() {{ :; }}\ndisks_folder=/run\n"
    told = SERVER.replace("'/storage/tools\\tp\\ttrue\\n'", "'/image/machine\\tstring\\tx86_64\\n'")
    assert told != SERVER
    done = run_agent(tmp_path, told + config + "refuse_partition() { :; }\ninstall_system\n")
    steps = ["check_disks", "partition", "download", "configure", "boot_loader"]
    if machine == "x86_64":
        assert done.stdout.split()[:5] == steps, done.stderr
    else:
        [result] = done.stdout.splitlines()
        assert "nothing was written: the image is for x86_64, and this machine is aarch64" in result
        assert done.returncode == 1


def test_an_install_that_stops_before_its_first_write_reports_no_disks_as_its_own(tmp_path: Path) -> None:
    """What an installer left on disks is confirmed by that: it must not be said of what others left there."""
    looked = f". {AGENT}/wipes\nlook_at_disks() {{ :; }}\ndisks_folder=/run\n: >/run/table\n"
    script = "refuse_partition() { :; }\ncheck_disks() { fail_install 'another disk'; }\ninstall_system\n"
    done = run_agent(tmp_path, SERVER + looked + script)
    assert done.returncode == 1, done.stderr
    assert '"error":"another disk"' in done.stdout
    assert '"disks"' not in done.stdout


def test_the_end_is_heard_also_where_there_is_more_on_the_disks_than_the_server_takes(tmp_path: Path) -> None:
    script = """
    touched=1
    disks() { printf '{"name":"many"}'; }
    ask() {
        case $2 in
        *many*) answer_with '413 Request Entity Too Large'; return 1 ;;
        *) echo "heard: $2" ;;
        esac
    }
    """
    done = run_agent(tmp_path, f"{script}\nleave\n")
    assert 'heard: {"ok":true,"key":""}' in done.stdout, done.stdout
    failed = run_agent(tmp_path, f"{script}\nfail_install $(seq 2000 | tr '\\n' _)\n")
    [heard] = [line for line in failed.stdout.splitlines() if line.startswith("heard: ")]
    assert len(heard) < 4000, "the server takes so much of an error, and no more"


def test_an_image_that_ends_between_two_files_does_not_count_as_unpacked(tmp_path: Path) -> None:
    """As when zstd is killed: each of its frames may end there, and tar alone is content with what it got."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("first", "second"):
            info = tarfile.TarInfo(name)
            info.size = tarfile.BLOCKSIZE
            tar.addfile(info, io.BytesIO(b"x" * info.size))
    piece = 2 * tarfile.BLOCKSIZE
    frames = [
        subprocess.run(["zstd", "-q"], input=part, capture_output=True, check=True).stdout
        for part in (out.getvalue()[:piece], out.getvalue()[piece:])
    ]
    script = """
    mkdir -p /run/image $1/root
    PATH=/run/bin:/usr/bin root=$1/root
    cp $1/stream /run/image/stream
    unpack &
    wait $! && echo unpacked || echo failed
    """
    (tmp_path / "stream").write_bytes(b"".join(frames))
    assert run_agent(tmp_path, script).stdout == "unpacked\n"
    (tmp_path / "stream").write_bytes(frames[0] + frames[1][:-8])
    assert run_agent(tmp_path, script).stdout == "failed\n"


def test_what_a_disk_did_not_take_fails_the_install(tmp_path: Path) -> None:
    """The disk is a file on a file system that is smaller: its writes fail long after tar has made them."""
    script = """
    mkdir $1/small $1/root
    mount -t tmpfs -o size=20m tmpfs $1/small
    truncate -s 200M $1/small/disk
    disk=$(losetup -f) && losetup $disk $1/small/disk || { echo no loop device; exit; }
    trap "umount $1/root; losetup -d $disk" EXIT
    PATH=/usr/sbin:/usr/bin:/run/bin root=$1/root
    mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 $disk
    mount -t ext4 $disk $root
    head -c 60000000 /dev/urandom >$root/file
    steps() { echo "mount disk0p1 / ext4 defaults 1"; }
    fail_install() { echo "failed: $1"; exit 1; }
    """
    unmount = next(part for part in (AGENT / "storage").read_text().split("\n\n") if "\nunmount() {" in f"\n{part}")
    done = run_agent(tmp_path, f"{script}{unmount}\nunmount\n")
    if "no loop device" in done.stdout:
        pytest.skip("there is no loop device here")
    assert done.stdout.startswith("failed: a disk did not take what was written to /: "), done.stderr


def test_a_new_system_that_has_no_room_for_its_own_files_is_not_called_installed(tmp_path: Path) -> None:
    """Such as its fstab, or the key that the server knows it by."""
    script = f"""
    . {AGENT}/install
    . {AGENT}/configure
    fail_install() {{ echo "failed: $1"; exit 1; }}
    told() {{ echo node-1; }}
    mkdir /run/root
    mount -t tmpfs -o size=64k tmpfs /run/root
    root=/run/root
    mkdir $root/etc
    cat /dev/zero >$root/image 2>/dev/null
    carefully "it is not told what it is" configure
    echo "went on"
    """
    done = run_agent(tmp_path, script.replace(f". {AGENT}/install", _only(AGENT / "install", "carefully")))
    assert done.stdout == "failed: it is not told what it is: a file is not written, with 0 KiB free\n", done


def _only(part: Traversable, function: str) -> str:
    """Return the lines of one function."""
    return "".join(part.read_text().partition(f"\n{function}() {{\n")[1:]).partition("\n}\n")[0] + "\n}\n"


@pytest.mark.parametrize("image_has", [("6.1.0-9-amd64", "6.1.0-10-amd64"), ("6.1.0-10-amd64", "5.10.0-44-amd64")])
def test_the_newest_kernel_is_started_and_not_the_last_in_the_alphabet(tmp_path: Path, image_has: tuple[str]) -> None:
    boot = tmp_path / "boot"
    boot.mkdir()
    (tmp_path / "etc").mkdir()
    for version in image_has:
        (boot / f"vmlinuz-{version}").write_text("kernel")
        (boot / f"initrd.img-{version}").write_text("initrd")
    script = f"""
    . {AGENT}/bootloader
    root=$1
    told() {{ :; }}
    fail_install() {{ echo "failed: $1"; exit 1; }}
    bios_boot_loader() {{ echo "$kernel $initrd"; }}
    uefi_boot_loader() {{ bios_boot_loader; }}
    boot_loader
    """
    loader = (AGENT / "bootloader").read_text().partition("\n\n")[2]
    done = run_agent(tmp_path, script.replace(f". {AGENT}/bootloader", loader))
    assert done.stdout.split() == ["vmlinuz-6.1.0-10-amd64", "initrd.img-6.1.0-10-amd64"], done
    assert (boot / "vmlinuz").readlink() == Path("vmlinuz-6.1.0-10-amd64")
    (boot / "initrd.img-6.1.0-10-amd64").unlink()
    done = run_agent(tmp_path, script.replace(f". {AGENT}/bootloader", loader))
    assert done.stdout == "failed: the image has no initrd.img-6.1.0-10-amd64 in /boot, for its newest kernel\n"
