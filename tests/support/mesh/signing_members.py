"""Members of a cluster that exist only as keys and certificates: enough to sign what lies in the datastore."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from rackwright.mesh.identity.authority import LIFE, AuthorityFiles
from rackwright.mesh.identity.server_identity import Identity, new_key
from rackwright.mesh.identity.signed_statements import Statements, never_revoked
from rackwright.mesh.runs.record_verifier import RecordVerifier


def make_identities(folder: Path, *names: str, life: timedelta = LIFE) -> dict[str, Identity]:
    """Members of one new cluster, by name."""

    async def issue() -> dict[str, Identity]:
        authority = AuthorityFiles(folder).create("trial", life)
        keys = {name: new_key() for name in names}
        issued = {name: await authority.issue(name, key.public_key()) for name, key in keys.items()}
        return {name: Identity(key, issued[name], authority.ca) for name, key in keys.items()}

    return asyncio.run(issue())


def statements_of(identity: Identity, revoked: Callable[[str, int], bool] = never_revoked) -> Statements:
    return Statements(lambda: identity, revoked)


def belief_of(folder: Path, name: str = "s1") -> RecordVerifier:
    """What one member of a new cluster believes, and signs."""
    return RecordVerifier(statements_of(make_identities(folder, name)[name]))
