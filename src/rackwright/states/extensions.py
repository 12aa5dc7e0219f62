"""Extension modules: fetches, verifies and loads state modules that are not built in.

They are Python files of the same shape as the built-in modules. One is loaded only with a good signature, and never in
an older version than before. Beside `NAME.py` lies `NAME.py.manifest`: name, version, sha256 and an OpenSSH signature
over those three. The bytes that were verified are the bytes that run; nothing is read twice. The bytes come from a
`Source`; an OpenSSH allowed-signers file says which keys are good; `VersionHistory` knows which versions were used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from .catalogue import Catalogue
from .module import StateError, StateFunction
from .refusal import refuse
from .ssh_signatures import CannotSign, KeygenMissing, UnknownSigner, WrongSignature, find_signer, make_signature

NAMESPACE = "rackwright-module"
MANIFEST = ".manifest"
SIGNERS = Path("/etc/rackwright/module-signers")
VERSION_HISTORY = Path("/var/lib/rackwright/module-versions.json")
FOLDER = "_modules"
"""The folder of a state tree with its own modules."""
SIZE_LIMIT = 4 * 1024 * 1024
NO_KEYGEN = "ssh-keygen is not on this machine; signatures of modules need OpenSSH 8.2 or newer"

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}")
DIGEST = re.compile(r"[0-9a-f]{64}")


class ExtensionRefused(Exception):
    """The module is not loaded; the text says which, why, and what would make it right."""


@dataclass(frozen=True)
class Manifest:
    """Name, version and digest of a module, and the signature over them."""

    name: str
    version: str
    sha256: str
    signature: str

    def signed_text(self) -> bytes:
        """Return exactly the text that is signed: three lines, so that neither name nor version can be exchanged."""
        return f"name: {self.name}\nversion: {self.version}\nsha256: {self.sha256}\n".encode()

    def dump(self) -> str:
        fields = {"name": self.name, "version": self.version, "sha256": self.sha256, "signature": self.signature}
        return json.dumps(fields, indent=2) + "\n"


def parse_manifest(text: bytes, name: str) -> Manifest:
    """Return the manifest of the module `name`. Raises ExtensionRefused if it is damaged or of another module."""
    try:
        fields = json.loads(text)
        manifest = Manifest(*(str(fields[key]) for key in ("name", "version", "sha256", "signature")))
    except (ValueError, KeyError, TypeError) as error:
        raise ExtensionRefused(f"module {name}: its manifest cannot be read ({error}); sign it again") from error
    if manifest.name != name:
        raise ExtensionRefused(f"module {name}: its manifest is that of {manifest.name!r}")
    check_name_and_version(manifest.name, manifest.version)
    if not DIGEST.fullmatch(manifest.sha256):
        raise ExtensionRefused(f"module {name}: its manifest has no sha256")
    return manifest


def check_name_and_version(name: str, version: str) -> None:
    if not NAME.fullmatch(name):
        raise ExtensionRefused(
            f"{name!r} is no name for a module: small letters, digits and _, beginning with a letter"
        )
    if not VERSION.fullmatch(version):
        raise ExtensionRefused(f"module {name}: {version!r} is no version; write numbers with dots between, like 1.4.2")


def version_key(version: str) -> Tuple[int, ...]:
    """Return a version as numbers that can be compared: 1.2 and 1.2.0 are the same version."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# Where modules come from


@dataclass(frozen=True)
class FetchedModule:
    """A module as a source delivered it: code and manifest are not verified yet."""

    code: bytes
    manifest: Optional[bytes]
    origin: str


class Source(Protocol):
    """A place that modules are fetched from."""

    def names(self) -> Sequence[str]:
        """Return the names of the modules that the source can list."""

    def fetch(self, name: str) -> Optional[FetchedModule]:
        """Return a module; None if the source does not have it."""


class Datastore(Protocol):
    """A store of keys and values, such as that of the mesh."""

    def get(self, key: str) -> Optional[bytes]: ...

    def keys(self, prefix: str) -> Sequence[str]: ...


@dataclass(frozen=True)
class FolderSource:
    """A folder with modules, for example `_modules` of a state repository."""

    folder: Path

    def names(self) -> Sequence[str]:
        return sorted(path.stem for path in self.folder.glob("*.py")) if self.folder.is_dir() else []

    def fetch(self, name: str) -> Optional[FetchedModule]:
        path = self.folder / f"{name}.py"
        if not path.is_file():
            return None
        manifest = Path(f"{path}{MANIFEST}")
        return FetchedModule(_read_bounded(path), _read_bounded(manifest) if manifest.is_file() else None, str(path))


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        return _check_size(file.read(SIZE_LIMIT + 1), str(path))


def _check_size(content: bytes, origin: str) -> bytes:
    if len(content) > SIZE_LIMIT:
        raise ExtensionRefused(f"{origin} is larger than {SIZE_LIMIT} bytes, which no module is")
    return content


@dataclass(frozen=True)
class DatastoreSource:
    """The datastore of the cluster, with the keys `PREFIX/NAME.py` and `PREFIX/NAME.py.manifest`."""

    store: Datastore
    prefix: str = "modules"

    def names(self) -> Sequence[str]:
        start = f"{self.prefix}/"
        return sorted(key[len(start) : -len(".py")] for key in self.store.keys(start) if key.endswith(".py"))

    def fetch(self, name: str) -> Optional[FetchedModule]:
        key = f"{self.prefix}/{name}.py"
        code = self.store.get(key)
        return (
            None
            if code is None
            else FetchedModule(_check_size(code, key), self.store.get(key + MANIFEST), f"datastore:{key}")
        )


@dataclass(frozen=True)
class UrlSource:
    """A web folder with modules. It is not trusted, only the signature is, so http is as good as https."""

    base: str
    timeout: float = 30.0

    def names(self) -> Sequence[str]:
        """Return nothing: a web folder cannot be listed; its modules are fetched by name."""
        return []

    def fetch(self, name: str) -> Optional[FetchedModule]:
        url = f"{self.base.rstrip('/')}/{name}.py"
        code = self._get(url)
        return None if code is None else FetchedModule(code, self._get(url + MANIFEST), url)

    def _get(self, url: str) -> Optional[bytes]:
        import urllib.error
        import urllib.request

        if not url.startswith(("http://", "https://")):
            raise ExtensionRefused(f"{url} is no http or https address")
        try:
            with urllib.request.urlopen(url, timeout=self.timeout) as response:  # noqa: S310 - checked above
                return _check_size(response.read(SIZE_LIMIT + 1), url)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise ExtensionRefused(f"cannot fetch {url}: {error}") from error
        except OSError as error:
            raise ExtensionRefused(f"cannot fetch {url}: {error}") from error


# Signatures


def sign(code: bytes, name: str, version: str, key: Path) -> Manifest:
    """Return the manifest for a module, signed with an OpenSSH key.

    `key` is a private key, or the public half of one that an SSH agent holds.
    """
    check_name_and_version(name, version)
    unsigned = Manifest(name, version, hashlib.sha256(code).hexdigest(), "")
    try:
        signature = make_signature(unsigned.signed_text(), key, NAMESPACE)
    except KeygenMissing as error:
        raise ExtensionRefused(NO_KEYGEN) from error
    except CannotSign as error:
        raise ExtensionRefused(f"module {name} cannot be signed with {key}: {error}") from error
    return Manifest(unsigned.name, unsigned.version, unsigned.sha256, signature)


def verify(fetched: FetchedModule, name: str, signers: Path) -> Tuple[Manifest, str]:
    """Return the manifest of a fetched module and the name of its signer. Raises ExtensionRefused if it is not good."""
    if fetched.manifest is None:
        raise ExtensionRefused(
            f"module {name} ({fetched.origin}) is not signed: there is no {name}.py{MANIFEST} beside it; "
            f"sign it with: rackwright module sign {name}.py --version VERSION --key KEY"
        )
    manifest = parse_manifest(fetched.manifest, name)
    digest = hashlib.sha256(fetched.code).hexdigest()
    if digest != manifest.sha256:
        raise ExtensionRefused(
            f"module {name} ({fetched.origin}) was altered after it was signed: its sha256 is {digest}, "
            f"the manifest says {manifest.sha256}"
        )
    if not signers.is_file():
        raise ExtensionRefused(
            f"module {name} ({fetched.origin}): no key is trusted here, there is no {signers}; "
            "put the signers in it, a line each: NAME KEYTYPE KEY"
        )
    return manifest, _verify_signature(manifest, fetched, signers)


def _verify_signature(manifest: Manifest, fetched: FetchedModule, signers: Path) -> str:
    subject = f"module {manifest.name} ({fetched.origin})"
    try:
        return find_signer(manifest.signed_text(), manifest.signature, signers, NAMESPACE)
    except KeygenMissing as error:
        raise ExtensionRefused(NO_KEYGEN) from error
    except UnknownSigner as error:
        raise ExtensionRefused(f"{subject} is not signed by a key that {signers} trusts: {error}") from error
    except WrongSignature as error:
        raise ExtensionRefused(f"{subject}: its signature is not good: {error}") from error


# The versions used before


@dataclass(frozen=True)
class VersionHistory:
    """The highest version of each module that this machine ever used.

    With it, an old version that was signed once cannot be brought back.
    """

    path: Path = VERSION_HISTORY

    def check(self, manifest: Manifest) -> None:
        self._check(manifest, self._read())

    def check_and_remember(self, manifest: Manifest) -> None:
        """Check a version and remember it in one step, so that two runs at a time cannot undo each other."""
        with self._locked():
            versions = self._read()
            self._check(manifest, versions)
            entry = {"version": manifest.version, "sha256": manifest.sha256}
            if versions.get(manifest.name) != entry:
                self._write({**versions, manifest.name: entry})

    def _check(self, manifest: Manifest, versions: Mapping[str, Mapping[str, str]]) -> None:
        earlier = versions.get(manifest.name)
        if earlier is None:
            return
        earlier_key, new_key = version_key(earlier["version"]), version_key(manifest.version)
        if new_key < earlier_key:
            raise ExtensionRefused(
                f"module {manifest.name} {manifest.version} is a downgrade: {earlier['version']} was used here before; "
                f"sign it with a higher version, or take it out of {self.path} if this is wanted"
            )
        if new_key == earlier_key and manifest.sha256 != earlier["sha256"]:
            raise ExtensionRefused(
                f"module {manifest.name} {manifest.version} is not the {earlier['version']} that was used here before; "
                "a changed module needs a higher version"
            )

    def _read(self) -> Dict[str, Dict[str, str]]:
        try:
            versions: Dict[str, Dict[str, str]] = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ExtensionRefused(
                f"{self.path} cannot be read ({error}); put it right, or remove it to forget"
            ) from error
        return versions

    def _write(self, versions: Mapping[str, Mapping[str, str]]) -> None:
        from .support.files import Owner, write_whole

        try:
            write_whole(
                str(self.path), (json.dumps(versions, indent=2, sort_keys=True) + "\n").encode(), Owner(mode=0o600)
            )
        except StateError as error:
            raise ExtensionRefused(f"cannot remember the versions of modules: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with Path(f"{self.path}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


# Loading


@dataclass(frozen=True)
class Extension:
    """A module that was verified and loaded."""

    name: str
    version: str
    signer: str
    origin: str
    functions: Tuple[StateFunction, ...]


@dataclass(frozen=True)
class Loader:
    """Loads modules from sources, in their order, if a trusted key has signed them and they are no downgrade."""

    sources: Tuple[Source, ...]
    signers: Path = SIGNERS
    memory: VersionHistory = VersionHistory()

    def load(self, name: str) -> Optional[Extension]:
        """Return a verified, loaded module; None if no source has it. The first source that has it decides."""
        fetched = self.find(name)
        if fetched is None:
            return None
        manifest, signer = verify(fetched, name, self.signers)
        self.memory.check_and_remember(manifest)
        return Extension(name, manifest.version, signer, fetched.origin, _execute_module(fetched, name))

    def fetch(self, name: str) -> Optional[Tuple[StateFunction, ...]]:
        """Return the functions of a module that a state names, for a catalogue; None if no source has it."""
        if not NAME.fullmatch(name):
            return None
        try:
            extension = self.load(name)
        except ExtensionRefused as refused:
            raise refuse(str(refused)) from refused
        return None if extension is None else extension.functions

    def find(self, name: str) -> Optional[FetchedModule]:
        if not NAME.fullmatch(name):
            raise ExtensionRefused(f"{name!r} is no name for a module")
        candidates = (source.fetch(name) for source in self.sources)
        return next((fetched for fetched in candidates if fetched is not None), None)

    def names(self) -> List[str]:
        return sorted({name for source in self.sources for name in source.names()})

    def functions(self) -> Dict[str, Tuple[StateFunction, ...]]:
        """Return the functions of every module that the sources can list, for the engine's catalogue."""
        loaded = (self.load(name) for name in self.names())
        return {extension.name: extension.functions for extension in loaded if extension is not None}


def _execute_module(fetched: FetchedModule, name: str) -> Tuple[StateFunction, ...]:
    module = ModuleType(f"rackwright_extension_{name}")
    module.__file__ = fetched.origin
    try:
        exec(compile(fetched.code, fetched.origin, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - it is signed
    except Exception as error:
        raise ExtensionRefused(
            f"module {name} ({fetched.origin}) fails to load: {type(error).__name__}: {error}"
        ) from error
    functions = getattr(module, "FUNCTIONS", None)
    if not isinstance(functions, (tuple, list)) or not all(
        isinstance(function, StateFunction) for function in functions
    ):
        raise ExtensionRefused(f"module {name} ({fetched.origin}) has no FUNCTIONS = (StateFunction(...), ...)")
    return tuple(functions)


def load_tree_catalogue(root: Path, signers: Path = SIGNERS, memory: Optional[VersionHistory] = None) -> Catalogue:
    """Return a catalogue of the built-in modules and the tree's own.

    A module that is refused refuses the run, before anything is touched.
    """
    folder = root / FOLDER
    if not folder.is_dir():
        return Catalogue()
    try:
        return Catalogue(Loader((FolderSource(folder),), signers, memory or VersionHistory()).functions())
    except ExtensionRefused as refused:
        raise refuse(str(refused)) from refused
