"""Parts of an agent, each built with its own ports only: no agent, no network, no datastore."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any

import pytest

from rackwright.mesh.address import Address
from rackwright.mesh.agent.admission_handler import AdmissionHandler, AdmissionPorts
from rackwright.mesh.agent.membership_driver import DriverPorts, MembershipDriver, next_session
from rackwright.mesh.agent.revocation_spread import RevocationSpread, SpreadPorts
from rackwright.mesh.agent.seeds import SeedPorts, Seeds
from rackwright.mesh.errors import NoAuthority
from rackwright.mesh.identity.authority import Authority, AuthorityFiles
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import (
    Identity,
    IdentityFiles,
    OwnIdentity,
    certificate_pem,
    name_of,
    new_key,
)
from rackwright.mesh.joining.renewal import Renewal, RenewalPorts
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_view import AUTHORITY_LABEL, authorities, authority_names, live_records
from rackwright.mesh.membership.metadata import Section, unpack_sections
from rackwright.mesh.membership.protocol_outputs import Event, EventKind
from rackwright.mesh.membership.swim import Swim, SwimConfig
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.supervision import Supervisor
from rackwright.mesh.transport import http
from rackwright.mesh.transport.tls import Contexts

HERE = Address("127.0.0.1", 7946)
HOLDS_CA = ((AUTHORITY_LABEL, "yes"),)


def record(name: str, labels: tuple[tuple[str, str], ...] = ()) -> MemberRecord:
    return MemberRecord(name, f"{name}.example:7946", 1, 1, labels)


class FakeMembers:
    """A view of members that never changes; the first one is this server."""

    def __init__(self, *entries: Entry) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @property
    def me(self) -> MemberRecord:
        return next(iter(self._entries.values())).record

    def members(self) -> list[Entry]:
        return list(self._entries.values())

    def member(self, name: str) -> Entry | None:
        return self._entries.get(name)


@dataclass
class Server:
    """The real small pieces of one server, s1."""

    folder: Path
    authority: Authority
    identity: OwnIdentity
    contexts: Contexts
    lines: list[dict[str, Any]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def log(self) -> Log:
        return Log("s1", lambda line: self.lines.append(json.loads(line)))

    @property
    def refusals(self) -> Refusals:
        return Refusals(self.log, self.metrics)

    @property
    def logged(self) -> list[str]:
        return [line["event"] for line in self.lines]

    def refused(self, reason: str) -> float:
        return self.metrics.registry.get_sample_value("rackwright_mesh_refused_total", {"reason": reason}) or 0.0

    def driver(self) -> MembershipDriver:
        revocations = RevocationFile(self.folder / "revocations.json", self.identity.current.ca)
        ports = DriverPorts(
            name="s1",
            advertise=HERE,
            contexts=self.contexts,
            revocations=revocations,
            refusals=self.refusals,
            spawner=Supervisor(self.log, self.metrics),
            metrics=self.metrics,
            log=self.log,
        )
        return MembershipDriver(Swim(SwimConfig(), record("s1"), random.Random(1)), ports)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    async def issue() -> tuple[Authority, Identity]:
        authority, key = AuthorityFiles(tmp_path / "ca").create("trial"), new_key()
        return authority, Identity(key, await authority.issue("s1", key.public_key()), authority.ca)

    authority, identity = asyncio.run(issue())
    files = IdentityFiles(tmp_path)
    files.save(identity)
    return Server(tmp_path, authority, OwnIdentity(files), Contexts(files))


# Members as parts see them


def test_only_the_living_that_say_so_hold_the_ca() -> None:
    members = FakeMembers(
        Entry(record("s1"), State.ALIVE, 0.0),
        Entry(record("s2", HOLDS_CA), State.SUSPECT, 0.0),
        Entry(record("s3", HOLDS_CA), State.DEAD, 0.0),
    )
    assert [member.name for member in live_records(members)] == ["s1", "s2"]
    assert [member.name for member in authorities(members)] == ["s2"]
    assert authority_names(members) == "s2"
    assert authority_names(FakeMembers(Entry(record("s1"), State.ALIVE, 0.0))) == "none that is alive"


# The driver


async def test_what_parts_publish_travels_together_with_the_own_record(server: Server) -> None:
    driver = server.driver()
    driver.publish_datastore(b"hint")
    driver.publish(Section.HEALTH, b"results")
    assert unpack_sections(driver.swim.me.metadata) == {Section.DATASTORE: b"hint", Section.HEALTH: b"results"}


async def test_a_frame_goes_to_the_handler_of_its_kind_and_one_without_is_refused(server: Server) -> None:
    driver, received = server.driver(), list[tuple[str, bytes]]()
    driver.handlers[77] = lambda peer, payload: received.append((peer, payload))
    driver.received("s2", 77, b"hello")
    driver.received("s2", 78, b"hello")
    assert received == [("s2", b"hello")]
    assert server.refused("unknown_kind") == 1


async def test_subscribers_hear_of_members_and_of_their_removal(server: Server) -> None:
    driver, received = server.driver(), list[Event]()
    driver.subscribe(received.append)
    driver.joined(record("s2"))
    driver.remove("s2")
    assert [(event.kind, event.member.name) for event in received][:1] == [(EventKind.JOINED, "s2")]
    assert driver.swim.member("s2") is None
    assert "member_joined" in server.logged


def test_every_start_is_a_new_session(tmp_path: Path) -> None:
    assert [next_session(tmp_path), next_session(tmp_path)] == [1, 2]


# Seeds


async def test_members_are_sought_after_a_restart_and_nobody_is_forgotten_while_alone(server: Server) -> None:
    driver, configured = server.driver(), Address("told.example", 7946)
    seeds = Seeds(SeedPorts("s1", server.folder, HERE, [configured, HERE], driver, server.log))
    assert seeds.known_addresses() == [configured]
    driver.joined(record("s2"))
    seeds.save()
    driver.remove("s2")
    seeds.save()
    assert seeds.known_addresses() == [configured, Address("s2.example", 7946)]


# Revocations


def spread_of(server: Server, driver: MembershipDriver, called: list[str]) -> RevocationSpread:
    ports = SpreadPorts(
        name="s1",
        identity=server.identity,
        authority=None,
        revocations=RevocationFile(server.folder / "revocations.json", server.identity.current.ca),
        transport=driver.transport,
        remove=lambda name: called.append(f"remove {name}"),
        changed=lambda: called.append("changed"),
        end=lambda: called.append("end"),
        refusals=server.refusals,
        metrics=server.metrics,
        log=server.log,
    )
    return RevocationSpread(ports)


async def test_a_newer_list_is_in_force_once_and_a_forged_one_never(server: Server) -> None:
    called: list[str] = []
    spread = spread_of(server, server.driver(), called)
    await server.authority.issue("s2", new_key().public_key())
    signed = await server.authority.revoke("s2")
    spread.list_received("s3", signed.replace(b"s2", b"s4"))
    assert called == []
    assert server.refused("bad_records") == 1
    spread.list_received("s3", signed)
    spread.list_received("s3", signed)
    assert called == ["remove s2", "changed"]


async def test_a_server_that_was_removed_itself_ends(server: Server) -> None:
    called: list[str] = []
    spread_of(server, server.driver(), called).take_own(await server.authority.revoke("s1"))
    assert called == ["remove s1", "changed", "end"]
    assert "removed_from_cluster" in server.logged


# Renewal


def renewal_of(server: Server, authority: Authority | None) -> Renewal:
    members = FakeMembers(Entry(record("s1"), State.ALIVE, 0.0))
    ports = RenewalPorts("s1", HERE, server.identity, server.contexts, authority, members, server.metrics, server.log)
    return Renewal(ports)


async def test_who_holds_the_ca_renews_its_own_certificate(server: Server) -> None:
    key = new_key()
    new_identity = await renewal_of(server, server.authority).renew(key)
    assert name_of(new_identity.certificate) == "s1"
    assert new_identity.certificate.serial_number != server.identity.current.certificate.serial_number
    server.identity.replace(new_identity)
    assert (
        IdentityFiles(server.folder).load().certificate
        == server.identity.current.certificate
        == new_identity.certificate
    )


async def test_without_a_living_authority_renewal_says_what_to_do(server: Server) -> None:
    with pytest.raises(NoAuthority, match="bring one back"):
        await renewal_of(server, None).renew(new_key())


# What is asked over HTTP


def handler_of(server: Server) -> AdmissionHandler:
    members = FakeMembers(Entry(record("s1"), State.ALIVE, 0.0), Entry(record("s2", HOLDS_CA), State.ALIVE, 0.0))
    tls: SSLContext = server.contexts.client
    return AdmissionHandler(AdmissionPorts(None, server.identity, members, tls, server.refusals))


async def test_a_stranger_is_shown_the_ca_and_nothing_else(server: Server) -> None:
    handler = handler_of(server)
    shown = await handler.answer(http.Request("GET", http.JOIN, b"", None, "192.0.2.1"))
    assert (shown.status, shown.content) == (200, {"ca": certificate_pem(server.identity.current.ca).decode()})
    other = await handler.answer(http.Request("GET", "/members", b"", None, "192.0.2.1"))
    assert (other.status, other.content["error"]) == (400, "bad_request")
    assert server.refused("bad_request") == 1


def test_who_does_not_hold_the_ca_names_who_does(server: Server) -> None:
    with pytest.raises(NoAuthority, match="on a server that does: s2"):
        handler_of(server).admission()
