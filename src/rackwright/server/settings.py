"""The settings of a server: one typed object, from flags, environment and file, in that order of precedence.

A flag wins over `RACKWRIGHT_<NAME>` in the environment, that over the file, and that over the default. The file is
TOML: `--config`, `$RACKWRIGHT_CONFIG`, or `rackwright.toml` in the home. What changes at run time, such as the cap, is
not here but in the database.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from rackwright.domain.barclamps.value_errors import pydantic_words
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.domain.machines.machine_names import DEFAULT, check_pattern
from rackwright.domain.networks.call_targets import IpNetwork
from rackwright.home import default_home
from rackwright.provision.images.signatures import BadPublicKey, read_public_key
from rackwright.store.db.database import shown_database_url
from rackwright.store.runs.claims import DEFAULT_LEASE

PREFIX = "RACKWRIGHT_"
FILE = "rackwright.toml"


class SettingsInvalid(RackwrightError):
    """A setting is wrong."""

    type = "settings-invalid"


class Options(BaseSettings):
    """All settings of a server.

    An object that is made directly has just the values that it is given; `load_settings` reads the environment and the
    file.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX)

    home: Path = Field(description="Where the server keeps its data.")
    database_url: str | None = Field(None, description="A PostgreSQL of yours, instead of the embedded one.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8090, ge=0, le=65535, description="Port to listen on.")
    tls: bool = Field(False, description="Serve HTTPS, with the given certificate or one that is made here.")
    tls_certificate: Path | None = Field(None, description="A PEM file with your certificate and its chain.")
    tls_key: Path | None = Field(None, description="The PEM file of its key.")
    tls_names: list[str] = Field(default_factory=list, description="More names and addresses for a self-made one.")
    insecure_http: bool = Field(False, description="Serve plain HTTP on other addresses than loopback too.")
    trusted_proxies: list[IpNetwork] = Field(
        default_factory=list, description="Proxies whose X-Forwarded-For and -Proto are believed; nobody's otherwise."
    )
    connections: int = Field(0, ge=0, description="Connections a listener has at a time; 0: as many as files allow.")
    connections_per_source: int = Field(0, ge=0, description="Of these from one address; 0: half.")
    request_timeout: float = Field(20.0, gt=0, description="Seconds for a handshake, and for a request to come in.")
    stall_timeout: float = Field(120.0, gt=0, description="Seconds for which a client may take nothing of an answer.")
    session_idle: float = Field(12 * 3600.0, gt=0, description="Seconds without a request after which a login ends.")
    session_absolute: float = Field(7 * 86400.0, gt=0, description="Seconds after which a login ends in any case.")
    event_retention: float = Field(30 * 86400.0, ge=60, description="Seconds for which events are kept.")
    run_retention: float = Field(
        90 * 86400.0, ge=60, description="Seconds for which ended runs and their logs are kept; the last ones stay."
    )
    rotate_key: bool = Field(False, description="Seal all secrets under a new key before serving.")
    metrics_allow: list[IpNetwork] = Field(
        default_factory=list, description="Networks that read /metrics without token."
    )
    webhook_allow: list[IpNetwork] = Field(
        default_factory=list, description="Private networks that webhooks may call; they are refused otherwise."
    )
    test_barclamp: bool = Field(False, description="Also import the barclamp that tries every flag.")
    lab: bool = Field(
        False, description="For simulated machines: a workload, a way to them, and their interface beside people's."
    )
    heartbeat: float = Field(10.0, gt=0, description="Seconds between the heartbeats that machines send.")
    lease: float = Field(DEFAULT_LEASE, gt=0, description="Seconds after which a dead server's work is taken over.")
    tick: float = Field(5.0, gt=0, description="Seconds between two looks at what nobody woke us for.")
    provision_address: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Our addresses on the network that machines boot from: IPv4, IPv6, or both."
    )
    provision_port: int = Field(8091, ge=0, le=65535, description="Port of the machine interface there, plain HTTP.")
    provision_interface: str | None = Field(None, description="Where to send IPv6 router advertisements.")
    tftp_port: int = Field(69, ge=0, le=65535, description="Port of TFTP there; firmware knows only 69.")
    image_signing_keys: list[str] = Field(
        default_factory=list,
        description="Public keys of minisign, of which one must have signed an image; without any none needs to be.",
    )
    kernel_arguments: str = Field("", description="For kernels that machines boot over the network: a console, say.")
    discovered_names: str = Field(
        DEFAULT,
        description="How machines are named that come by themselves, of {mac}, {uuid}, {serial}, {rack} and {port}.",
    )
    qemu_sockets: Path | None = Field(None, description="Where QEMU machines of this host have control sockets.")
    dhcp_interfaces: list[str] = Field(
        default_factory=list, description="Interfaces to answer DHCP on, with ISC Kea; without any nobody is answered."
    )
    kea: str = Field("kea-dhcp4", description="Which Kea to run.")
    kea6: str = Field(
        "kea-dhcp6", description="Which Kea to run for IPv6, once a network with an IPv6 subnet is served."
    )
    dns_address: str | None = Field(None, description="Address to serve the names of nodes on, with Knot.")
    dns_port: int = Field(53, ge=1, le=65535, description="Port to serve them on.")
    knot: str = Field("knotd", description="Which Knot to run.")
    launcher: list[str] = Field(
        default_factory=list, description="What daemons are run by, such as: ip netns exec NAME."
    )
    mesh_folder: Path | None = Field(
        None, description="The folder of this host's mesh agent: members show as nodes, and states can go that way."
    )
    manual: bool = Field(False, description="Without annealer: nothing runs and no hook is called but by hand.")

    def __init__(self, home: Path, database_url: str | None = None, **others: Any) -> None:
        super().__init__(home=home, database_url=database_url, **others)

    @field_validator("discovered_names")
    @classmethod
    def _check_names_pattern(cls, pattern: str) -> str:
        try:
            return check_pattern(pattern)
        except Invalid as error:
            raise ValueError(error.message) from None

    @field_validator("provision_address", mode="before")
    @classmethod
    def _split_provision_addresses(cls, given: object) -> object:
        """Take a single address for a list of one; several in the environment are a list in JSON, as all lists are."""
        if isinstance(given, str):
            return json.loads(given) if given.startswith("[") else [given]
        return [] if given is None else given

    @field_validator("provision_address")
    @classmethod
    def _check_provision_addresses(cls, addresses: list[str]) -> list[str]:
        return list(dict.fromkeys(_check_provision_address(address) for address in addresses))

    @field_validator("image_signing_keys")
    @classmethod
    def _check_signing_keys(cls, keys: list[str]) -> list[str]:
        for key in keys:
            try:
                read_public_key(key)
            except BadPublicKey as error:
                raise ValueError(str(error)) from None
        return keys

    @model_validator(mode="after")
    def _check_tls_options(self) -> "Options":
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both, or neither")
        if self.tls_certificate is not None and not self.tls:
            raise ValueError("there is a tls_certificate, but tls is off: set tls = true to use it")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use the arguments alone, so that a server in a test does not depend on the shell that runs it."""
        return (init_settings,)

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def _check_provision_address(text: str) -> str:
    """Return an address that machines can be told, in its usual spelling; ValueError says what is wrong with it."""
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no IP address; write it like 10.0.0.1 or fd00::1, without a port") from None
    if isinstance(address, IPv6Address) and address.is_link_local:
        raise ValueError(
            f"{text[:80]} is a link-local address, which no URL can name; give one of the network's subnet"
        )
    return str(address)


@dataclass(frozen=True)
class Settings:
    """The options, and the source of each: `default`, a file, a variable of the environment or `flag`."""

    options: Options
    sources: Mapping[str, str]


@dataclass(frozen=True)
class ShownSetting:
    """A setting as a person sees it."""

    name: str
    value: str
    source: str
    description: str


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Return the settings that a server runs with; SettingsInvalid says what is wrong with them.

    `flags` are the options on the command line; `config` is the file to read instead of the usual one.
    """
    _check_no_password(flags.get("database_url"))
    environment = _environment()
    home = Path(flags.get("home") or environment.get("home") or default_home()).expanduser().absolute()
    variable = os.environ.get(f"{PREFIX}CONFIG")
    chosen = config or (Path(variable) if variable else None)
    path = chosen or home / FILE
    layers = {
        "default": {"home": home},
        str(path): _read_file(path, required=chosen is not None),
        "environment": environment,
        "flag": dict(flags),
    }
    values: dict[str, Any] = {}
    sources = dict.fromkeys(Options.model_fields, "default")
    for source, layer in layers.items():
        values |= layer
        sources |= {name: f"{PREFIX}{name.upper()}" if source == "environment" else source for name in layer}
    values["home"] = home if sources["home"] != str(path) else Path(values["home"]).expanduser().absolute()
    try:
        return Settings(Options(**values), sources)
    except ValidationError as error:
        raise SettingsInvalid(_describe_errors(error, sources)) from None


def show_settings(settings: Settings) -> list[ShownSetting]:
    """Return every setting with its value and its source, for `rackwright config show`. Passwords are hidden."""
    return [
        ShownSetting(
            name, _shown_value(name, getattr(settings.options, name)), settings.sources[name], field.description or ""
        )
        for name, field in Options.model_fields.items()
    ]


def _check_no_password(url: str | None) -> None:
    """Refuse a database URL with a password on the command line, which every user of a host can read."""
    try:
        password = None if url is None else make_url(url).password
    except (ArgumentError, ValueError):
        return  # a URL that cannot be read is refused when the database is opened
    if password is not None:
        raise SettingsInvalid(
            "--database-url has a password in it, which every user of this host could read from the list of processes. "
            f"Give the URL as {PREFIX}DATABASE_URL in the environment, or as database_url in the settings file."
        )


def _environment() -> dict[str, Any]:
    try:
        values: dict[str, Any] = EnvSettingsSource(Options)()
    except ValueError as error:
        raise SettingsInvalid(f"A variable of the environment cannot be read: {error}. Lists are JSON.") from None
    return values


def _read_file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if required:
            raise SettingsInvalid(f"There is no settings file {path}.") from None
        return {}
    except OSError as error:
        raise SettingsInvalid(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"The settings file {path} is no TOML: {error}.") from None
    for name in values:
        if name not in Options.model_fields:
            closest = get_close_matches(name, Options.model_fields, n=1, cutoff=0.0)[0]
            raise SettingsInvalid(f"{path}: there is no setting {name!r}; did you mean {closest!r}?")
    return values


def _describe_errors(error: ValidationError, sources: Mapping[str, str]) -> str:
    lines: dict[str, None] = {}
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        words = pydantic_words(problem["type"], problem.get("ctx", {})) or problem["msg"].removeprefix("Value error, ")
        lines[f"{name} (from {sources.get(name, 'flag')}): {words}" if name else words] = None
    return "The settings do not fit: " + "; ".join(lines) + "."


def _shown_value(name: str, value: object) -> str:
    if name == "database_url" and isinstance(value, str):
        return shown_database_url(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
