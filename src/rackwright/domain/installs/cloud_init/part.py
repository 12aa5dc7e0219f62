"""cloud-init of an install: what people gave it, checked by the schema of the image's own cloud-init.

Nothing of it is told to the installer, whose config is served over plain HTTP: the server sends the seed itself, over
SSH, once the new system is up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.cloud_init.refusals import find_refusals
from rackwright.domain.installs.cloud_init.schema import BadSchema, find_schema_faults
from rackwright.domain.installs.cloud_init.secret_references import NAME, find_references
from rackwright.domain.installs.cloud_init.seed import make_seed
from rackwright.domain.installs.cloud_init.user_data import ATTRIB, BadUserData, UserData, read_user_data
from rackwright.domain.installs.request import CloudInitSchema, InstallPart, InstallRequest, Problem, RootFile
from rackwright.domain.sealed import is_sealed

META_DATA = "provisioner-meta-data"
SECRETS = "provisioner-secrets"
MOST_OF_SECRETS = 256 * 1024
"""Characters that secrets add to user-data in all: each reference counts, also several to one secret."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with user-data by itself, whichever machine it is for."""

    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = ()
    references: tuple[tuple[str, int], ...] = ()
    """The names of the secrets that it refers to, with their lines."""


def check_cloud_init(request: InstallRequest) -> InstallPart:
    """Return what is wrong with what people gave cloud-init; nothing is told to the installer."""
    text = request.setting("user_data")
    if not isinstance(text, str) or not text:
        return InstallPart(problems=tuple(_check_alone(request)))
    verdict = judge_user_data(text, request.cloud_init)
    problems = (
        *_check_meta_data(request),
        *_check_references(verdict, request.setting("secrets")),
        *verdict.problems,
    )
    return InstallPart(problems=problems, notes=verdict.notes)


@lru_cache(maxsize=64)
def judge_user_data(text: str, image: CloudInitSchema | None) -> Verdict:
    """Return what is wrong with user-data for an image; kept, since many machines have the same."""
    try:
        data = read_user_data(text)
    except BadUserData as error:
        return Verdict((error.problem,))
    judged = InstallPart() if image is None else _check_schema(data, image)
    problems = (*_check_keys(data), *_check_refusals(data), *judged.problems)
    return Verdict(problems, judged.notes, tuple(find_references(data)))


def _check_alone(request: InstallRequest) -> Iterator[Problem]:
    if request.setting("meta_data"):
        yield Problem(META_DATA, f"it is for cloud-init, which does nothing without {ATTRIB}")


def _check_meta_data(request: InstallRequest) -> Iterator[Problem]:
    given = request.setting("meta_data")
    for key in ("instance-id", "local-hostname"):
        value = given.get(key) if isinstance(given, dict) else None
        if value is not None and not (isinstance(value, str) and value.strip()):
            yield Problem(META_DATA, f"{key} is text")


def _check_references(verdict: Verdict, secrets: Json) -> Iterator[Problem]:
    """Judge references by the secrets that there are: while planning, the length of each by its name."""
    lengths = {} if not isinstance(secrets, dict) or is_sealed(secrets) else secrets
    names, added = set(lengths), 0
    for name, line in verdict.references:
        length = lengths.get(name)
        before, added = added, added + (length if isinstance(length, int) else 0)
        if before <= MOST_OF_SECRETS < added:
            yield Problem(
                ATTRIB, f"the secrets that it refers to have more than {MOST_OF_SECRETS} characters in all", line
            )
        if not NAME.fullmatch(name):
            yield Problem(ATTRIB, f"{name[:64]!r} is no name of a secret", line)
        elif name not in names:
            there_are = f"; there are {', '.join(sorted(names))}" if names else ""
            yield Problem(ATTRIB, f"{SECRETS} has no secret {name}{there_are}", line)


def _check_keys(data: UserData) -> Iterator[Problem]:
    if data.document is None:
        return
    for value in data.document.walk():
        for key in value.value if isinstance(value.value, dict) else ():
            if "${secret:" in key:
                yield Problem(ATTRIB, "a secret is within a value, not a key", value.line)


def _check_refusals(data: UserData) -> Iterator[Problem]:
    if data.document is not None:
        for reason, line in find_refusals(data.document):
            yield Problem(ATTRIB, reason, line)


def _check_schema(data: UserData, image: CloudInitSchema) -> InstallPart:
    """Return what the schema of the image says against user-data: mistakes, and what is deprecated."""
    if image.schema is None:
        reason = (
            f"the image of {image.system} has no cloud-init. Build one that has it: rackwright image build"
            f" {image.system}"
        )
        return InstallPart(problems=(Problem(ATTRIB, reason),))
    if data.document is None:
        return InstallPart()
    try:
        faults = find_schema_faults(image.schema, data.document)
    except BadSchema as error:
        reason = f"the schema of cloud-init in the image of {image.system} cannot be used ({error}). Build it again"
        return InstallPart(problems=(Problem(ATTRIB, reason),))
    problems = [Problem(ATTRIB, str(fault), fault.line) for fault in faults if not fault.deprecation]
    notes = [Problem(ATTRIB, str(fault), fault.line) for fault in faults if fault.deprecation]
    return InstallPart(problems=tuple(problems), notes=tuple(notes))


@dataclass(frozen=True)
class FirstBoot:
    """What cloud-init of a new system is given, with its secrets: never for a log, an answer or the installer."""

    node: str
    instance_id: str
    user_data: str
    meta_data: JsonObject
    secrets: Mapping[str, str]

    def make_files(self) -> tuple[RootFile, ...]:
        """Return the files of the seed. That may take a second: it is for a thread of its own."""
        return make_seed(self.node, self.instance_id, read_user_data(self.user_data), self.meta_data, self.secrets)


def make_first_boot(node: str, instance_id: str, settings: JsonObject) -> FirstBoot | None:
    """Return what cloud-init of a system is given by settings that were checked; None if it is to do nothing."""
    text = settings.get("user_data")
    if not isinstance(text, str) or not text:
        return None
    meta_data, given = settings.get("meta_data"), settings.get("secrets")
    secrets = {name: value for name, value in _entries(given) if isinstance(value, str)}
    return FirstBoot(node, instance_id, text, dict(_entries(meta_data)), secrets)


def _entries(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and not is_sealed(value):
        yield from value.items()
