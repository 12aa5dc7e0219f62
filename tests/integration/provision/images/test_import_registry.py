"""Images in a registry, spoken to by the real skopeo: what would be too much is refused before it is fetched."""

import hashlib
import json
import platform
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.machines.root_trees import make_root_tree

from rackwright.domain.architectures import name_architecture
from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.shelf import Shelf

OCI = "application/vnd.oci.image"


class Registry(ThreadingHTTPServer):
    """A registry with one repository, `trial`; it notes which blobs were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.fetched: list[str] = []

    @property
    def image(self) -> str:
        return f"docker://127.0.0.1:{self.server_address[1]}/trial:1"

    def put_manifest(self, document: dict[str, object], kind: str = "manifest", tag: str = "1") -> str:
        content = json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}.{kind}.v1+json", **document}).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.manifests[tag] = self.manifests[digest] = (f"{OCI}.{kind}.v1+json", content)
        return digest

    def put_image(self, layout: Path, **changes: int) -> str:
        """Put the image of a layout there; `changes` are what it says of the sizes of its layers."""
        index = json.loads((layout / "index.json").read_text())
        blobs = layout / "blobs/sha256"
        self.blobs = {f"sha256:{path.name}": path.read_bytes() for path in blobs.iterdir()}
        manifest = json.loads(self.blobs[index["manifests"][0]["digest"]])
        manifest["layers"][0] |= changes
        return self.put_manifest({key: manifest[key] for key in ("config", "layers")})


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        kind, name = self.path.split("/")[-2:]
        if kind == "manifests" and name in self.server.manifests:
            self._answer(*self.server.manifests[name])
        elif kind == "blobs" and name in self.server.blobs:
            self.server.fetched.append(name)
            self._answer("application/octet-stream", self.server.blobs[name])
        else:
            self._answer("application/json", b"{}", 200 if self.path == "/v2/" else 404)

    def _answer(self, kind: str, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        host = server.image.removeprefix("docker://").partition("/")[0]
        settings = tmp_path / ".config/containers/registries.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
        monkeypatch.setenv("HOME", str(tmp_path))
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    layout, bundle = tmp_path / "layout", tmp_path / "bundle"
    for command in (["init", "--layout", layout], ["new", "--image", f"{layout}:1"]):
        subprocess.run(["umoci", *map(str, command)], check=True)
    unpack = ["umoci", "unpack", "--image", f"{layout}:1", bundle]
    subprocess.run(list(map(str, unpack)), check=True, capture_output=True)
    (bundle / "rootfs").rmdir()
    make_root_tree(bundle / "rootfs", size=700_000)
    repack = ["umoci", "repack", "--image", f"{layout}:1", bundle]
    subprocess.run(list(map(str, repack)), check=True, capture_output=True)
    return layout


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "home")


def test_an_image_of_a_registry_becomes_an_image(shelf: Shelf, registry: Registry, layout: Path) -> None:
    digest = registry.put_image(layout)
    for source, sha256 in ((registry.image, digest), (f"{registry.image.removesuffix(':1')}@{digest}", None)):
        image = import_image(shelf, "trial-1", source, lambda _: None, sha256=sha256)
        assert (image.about["sha256"], image.about["from"]) == (digest, source)


@pytest.mark.parametrize(("size", "words"), [(1 << 50, "the most is"), (60 << 30, "Nothing was begun")])
def test_what_says_that_it_is_too_much_is_not_fetched(
    shelf: Shelf, registry: Registry, layout: Path, monkeypatch: pytest.MonkeyPatch, size: int, words: str
) -> None:
    usage = type("Usage", (), {"free": 50 << 30, "total": 500 << 30})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    registry.put_image(layout, size=size)
    with pytest.raises(BuildFailed, match=words):
        import_image(shelf, "trial-1", registry.image, lambda _: None)
    assert registry.fetched == []


def test_another_digest_is_refused_before_it_is_fetched(shelf: Shelf, registry: Registry, layout: Path) -> None:
    registry.put_image(layout)
    with pytest.raises(BuildFailed, match="Nothing was imported"):
        import_image(shelf, "trial-1", registry.image, lambda _: None, sha256="0" * 64)
    assert registry.fetched == []


def test_of_several_kinds_of_machine_that_of_this_host_is_taken(shelf: Shelf, registry: Registry, layout: Path) -> None:
    ours = registry.put_image(layout)
    machine = name_architecture(platform.machine())
    kinds = [("windows", machine, "0" * 64), ("linux", "mips", "1" * 64)]
    entries = [
        {
            "mediaType": f"{OCI}.manifest.v1+json",
            "size": 500,
            "digest": digest,
            "platform": {"os": os, "architecture": of},
        }
        for os, of, digest in [*kinds, ("linux", machine, ours)]
    ]
    index = registry.put_manifest({"manifests": entries}, "index")
    image = import_image(shelf, "trial-1", registry.image, lambda _: None, sha256=index)
    assert image.about["sha256"] == ours
    registry.put_manifest({"manifests": entries[:2]}, "index")
    with pytest.raises(BuildFailed, match="no image of Linux"):
        import_image(shelf, "trial-1", registry.image, lambda _: None)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"layers": []},
        {"layers": [1]},
        {"layers": "x"},
        {"layers": [{"digest": "x"}]},
        {"layers": [{"size": -1}]},
        {"manifests": 1},
        {"manifests": [None, {}, {"platform": 1}]},
        {"layers": [{"size": 1}] * 2000},
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused_in_words(
    shelf: Shelf, registry: Registry, document: dict[str, object]
) -> None:
    registry.put_manifest(document)
    with pytest.raises(BuildFailed):
        import_image(shelf, "trial-1", registry.image, lambda _: None)
    assert registry.fetched == []


def test_a_registry_that_sends_more_than_it_said_is_refused(
    shelf: Shelf, registry: Registry, layout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put_image(layout)
    monkeypatch.setattr("rackwright.provision.images.importing.oci_images.SLACK", 10_000)
    layer = max(registry.blobs, key=lambda digest: len(registry.blobs[digest]))
    registry.blobs[layer] *= 20
    with pytest.raises(BuildFailed, match="skopeo ended"):
        import_image(shelf, "trial-1", registry.image, lambda _: None)
