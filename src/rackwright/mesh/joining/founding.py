"""Founding of a cluster on its first server: makes the CA, the server's own identity, and its settings."""

import asyncio
from datetime import timedelta
from pathlib import Path

from rackwright.mesh import agent_settings
from rackwright.mesh.address import Address
from rackwright.mesh.datastore import datastore_state
from rackwright.mesh.errors import BadIdentity
from rackwright.mesh.identity.authority import LIFE, AuthorityFiles
from rackwright.mesh.identity.server_identity import Identity, IdentityFiles, checked_name, new_key
from rackwright.mesh.joining.handover import ensure_key


def found_cluster(
    folder: Path,
    name: str,
    cluster: str,
    bind: Address | None,
    advertise: Address,
    passphrase_file: Path | None = None,
    life: timedelta = LIFE,
) -> Identity:
    """Make a cluster of one server. Refused where there already is an identity, for it could not be made again."""
    refuse_if_member(folder)
    checked_name(name)
    authority = AuthorityFiles(folder, passphrase_file).create(cluster, life)
    key = new_key()
    certificate = asyncio.run(authority.issue(name, key.public_key(), advertise.host))
    identity = Identity(key, certificate, authority.ca)
    ensure_key(folder / "ssh_key")
    settings = agent_settings.Settings(
        name, bind or advertise, advertise, ca_passphrase_file=passphrase_file, certificate_life=life
    )
    agent_settings.save(folder, settings)
    IdentityFiles(folder).save(identity)
    datastore_state.mark_founder(folder)
    return identity


def refuse_if_member(folder: Path, *, again: bool = False) -> None:
    """Raise BadIdentity if a folder holds an identity.

    `again` lets a plain member take a new identity; a server that holds a CA would orphan its cluster.
    """
    files = IdentityFiles(folder)
    if (files.node.exists() and not again) or AuthorityFiles(folder).exist():
        raise BadIdentity(
            f"this server already belongs to a cluster: {folder} holds its identity; leave it and move that folder"
            " away, or use another one with --dir"
        )
