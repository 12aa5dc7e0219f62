"""Our verdict on user-data, compared with Debian's real `cloud-init schema`, which runs in a folder with its packages.

It is the peer: what it takes we take, what it refuses we refuse. Where we are stricter on purpose, that is said here.
"""

import json
import subprocess
from pathlib import Path

import pytest

from rackwright.domain.installs.cloud_init.part import check_cloud_init
from rackwright.domain.installs.request import CloudInitSchema, InstallRequest
from rackwright.provision.images.packages import Source, fetch_packages
from rackwright.provision.images.systems import CLOUD_INIT, SYSTEMS

SUITE = SYSTEMS["debian-12"].suite
SCHEMA = "usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json"

JUDGE = """
import contextlib, io, json, sys
from cloudinit.cmd.main import main
verdicts = []
for number, text in enumerate(json.load(sys.stdin)):
    path = f"/tmp/document-{number}"
    with open(path, "w") as file:
        file.write(text)
    said = io.StringIO()
    sys.argv = ["cloud-init", "schema", "--config-file", path]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main()
        except SystemExit as error:
            status = error.code
        except BaseException as error:
            status = repr(error)
    verdicts.append([status in (0, None), f"{status}: {said.getvalue()}"])
json.dump(verdicts, sys.stdout)
"""

DOCUMENTS = (
    # Accepted
    "package_update: yes\npackages: [a, [b, '1.0']]\n",
    "users:\n- default\n- name: x\n  sudo: ALL=(ALL) NOPASSWD:ALL\n  ssh_authorized_keys: [ssh-ed25519 AAAA]\n",
    "users: [{name: x, passwd: $6$abc, lock_passwd: false, groups: [a, b], uid: 2000}]\n",
    "users: [{name: x, expiredate: '2030-01-31'}]\n",
    "write_files:\n- {path: /a, content: b, permissions: '0644', owner: 'root:root', append: true}\n",
    "write_files:\n- {path: /a, content: !!binary aGVsbG8=}\n",
    "runcmd:\n- ls\n- [sh, -c, 'echo x']\n",
    "bootcmd: [[ls], ls]\n",
    "chpasswd: {expire: false, users: [{name: x, type: RANDOM}]}\n",
    "apt:\n  sources:\n    mine: {source: 'deb http://x ./'}\n  preserve_sources_list: off\n",
    "base: &b {name: x}\nusers: [{<<: *b, gecos: y}]\n",
    "mounts:\n- [/dev/vdb, /srv, ext4, defaults, '0', '2']\n",
    "ntp: {enabled: true, servers: [ntp.example.com]}\n",
    "timezone: Europe/Berlin\nlocale: de_DE.UTF-8\n",
    "growpart: {mode: 'off'}\nresize_rootfs: noblock\n",
    "power_state: {mode: reboot, delay: now, timeout: 30}\n",
    "ssh_pwauth: true\nssh_import_id: [gh:x]\n",
    "swap: {filename: /swap, size: auto, maxsize: 1G}\n",
    "disk_setup: {/dev/vdb: {table_type: gpt, layout: true}}\nfs_setup: [{device: /dev/vdb1, filesystem: ext4}]\n",
    "phone_home: {url: 'http://example.com/', post: all}\n",
    "unknown_key_of_somebody: {a: 1}\n",
    "hostname: x\nfqdn: x.example.com\npreserve_hostname: false\n",
    # Deprecated, which is no error
    "ca-certs: {remove-defaults: true, trusted: [x]}\n",
    "chpasswd: {list: 'a:b'}\n",
    "apt_update: true\n",
    "users: {name: x}\n",
    # Refused
    "package_update: maybe\n",
    "packages: x\n",
    "packages: [[a, b, c]]\n",
    "runcmd: 5\n",
    "runcmd: [5]\n",
    "runcmd: []\n",
    "bootcmd: ls\n",
    "users: [{name: 5}]\n",
    "users: [{nam: x}]\n",
    "users: [{name: x, passwd: 5}]\n",
    "users: [{name: x, sudo: ['ALL']}]\n",
    "users: [{name: x, expiredate: 2030-01-31}]\n",
    "users: [{name: x, expiredate: tomorrow}]\n",
    "write_files:\n- {path: /a, permissions: 0644}\n",
    "write_files:\n- {content: x}\n",
    "write_files:\n- {path: /a, encoding: rot13}\n",
    "write_files: {path: /a}\n",
    "chpasswd: {users: [{name: x}]}\n",
    "chpasswd: {expire: 7}\n",
    "apt: {sources: [x]}\n",
    "apt: {unheard_of: 1}\n",
    "mounts: [5]\n",
    "ntp: {servers: x}\n",
    "timezone: 5\n",
    "growpart: {mode: off}\n",
    "growpart: {mode: sometimes}\n",
    "power_state: {mode: sleep}\n",
    "power_state: {delay: 5}\n",
    "ssh_pwauth: 5\n",
    "swap: {size: 12xy}\n",
    "phone_home: {post: all}\n",
    "disk_setup: {/dev/vdb: {layout: 5}}\n",
    "locale: [x]\n",
    "- a\n",
    "a: b: c\n",
    "a: [\n",
    "a: *b\n",
    "a: !!python/object:os.system x\n",
    "a: 1\n---\nb: 2\n",
    "\ta: 1\n",
)
STRICTER = {
    "a: 1\na: 2\n": "is here twice",
    "1: 2\n": "is not text",
    "ssh_deletekeys: true\n": "host key",
    "disable_root: true\n": "logs in as root",
    "power_state: {mode: poweroff}\n": "an install ends when",
    "a: " + "[" * 40 + "]" * 40 + "\n": "deeper than",
}
"""What cloud-init takes and we refuse, and the reason that we give."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Debian's cloud-init and all it needs; nothing of it is installed, on this host or there."""
    folder = tmp_path_factory.mktemp("cloud-init") / "tree"
    fetch_packages([CLOUD_INIT, "python3"], Source(SUITE), folder, lambda _: None)
    return folder


def judge(tree: Path, documents: list[str]) -> list[tuple[bool, str]]:
    """Return what `cloud-init schema` of Debian says about documents: whether it takes each, and its words."""
    command = ["chroot", str(tree), "/usr/bin/python3.11", "-c", JUDGE]
    judged = subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, check=True)
    return [(taken, said) for taken, said in json.loads(judged.stdout)]


def verdict(tree: Path, document: str) -> list[str]:
    """Return why we refuse a document."""
    schema = (tree / SCHEMA).read_text()
    image = CloudInitSchema("debian-12", schema)
    checked = check_cloud_init(InstallRequest("n1", {"user_data": document}, cloud_init=image))
    return [str(problem) for problem in checked.problems]


def test_we_take_what_cloud_init_takes_and_refuse_what_it_refuses(tree: Path) -> None:
    documents = [f"#cloud-config\n{body}" for body in DOCUMENTS]
    differences = []
    judged = judge(tree, documents)
    for document, (taken, said) in zip(documents, judged, strict=True):
        problems = verdict(tree, document)
        if taken != (not problems):
            differences.append(f"{document!r}\n  cloud-init: {said}\n  we: {problems}")
    assert not differences, "\n".join(differences)
    assert {taken for taken, _ in judged} == {True, False}, "the peer tells them apart"


def test_we_are_stricter_only_where_we_mean_to_be(tree: Path) -> None:
    documents = [f"#cloud-config\n{body}" for body in STRICTER]
    for document, (taken, said), reason in zip(documents, judge(tree, documents), STRICTER.values(), strict=True):
        assert taken, said
        assert any(reason in problem for problem in verdict(tree, document)), document


def test_a_line_is_that_which_cloud_init_annotates(tree: Path) -> None:
    document = "#cloud-config\npackages: [a]\n\nruncmd: 5\nusers: [default]\n"
    (tree / "tmp" / "annotated").write_text(document)
    program = (
        "import sys; sys.argv = ['cloud-init', 'schema', '--annotate', '--config-file', '/tmp/annotated']\n"
        "from cloudinit.cmd.main import main; main()"
    )
    command = ["chroot", str(tree), "/usr/bin/python3.11", "-c", program]
    annotated = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    [number] = [number for number, line in enumerate(annotated.splitlines(), start=1) if line.endswith("# E1")]
    assert verdict(tree, document) == [f"provisioner-user-data, line {number}: runcmd: 5 is not of type 'array'"]
