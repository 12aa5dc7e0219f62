"""The errors of the mesh, in one flat list.

The docstring of an error is its default message: one sentence for a person, with the way out. `code` is stable: it
labels the counter and the log line, and it is sent to peers. Nothing here knows how an error is shown.
"""


class MeshError(Exception):
    """The mesh could not do that"""

    code = "mesh"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class BadIdentity(MeshError):
    """The certificate or key is not what it should be"""

    code = "bad_identity"


class BadRecords(MeshError):
    """The cluster's records do not carry the cluster's signature"""

    code = "bad_records"


class BadSettings(MeshError):
    """The agent's settings cannot be used"""

    code = "bad_settings"


class BadRequest(MeshError):
    """The request cannot be read"""

    code = "bad_request"


class Unreadable(MeshError):
    """What another member wrote cannot be read"""

    code = "unreadable"


class NotInvited(MeshError):
    """This name has not been invited"""

    code = "not_invited"


class BadToken(MeshError):
    """The token is wrong, used or too old; ask for a new one with: rackwright mesh token NAME"""

    code = "bad_token"


class AddressDiffers(MeshError):
    """The address is not the one that the token was made for"""

    code = "address_differs"


class NameTaken(MeshError):
    """Another server holds this name"""

    code = "name_taken"


class HostKeyDiffers(MeshError):
    """The SSH host key is not the invited one"""

    code = "host_key_differs"


class KeyDiffers(MeshError):
    """The key on the invited server is not the one in the request"""

    code = "key_differs"


class Unreachable(MeshError):
    """The server could not be reached"""

    code = "unreachable"


class WrongFingerprint(MeshError):
    """The cluster's CA is not the pinned one"""

    code = "wrong_fingerprint"


class NoAuthority(MeshError):
    """This server does not hold the cluster's CA"""

    code = "no_authority"


class TooMany(MeshError):
    """Too many requests; try again in a minute"""

    code = "too_many"


class NoAgent(MeshError):
    """No agent answers here; start it with: rackwright agent"""

    code = "no_agent"


class NoDatastore(MeshError):
    """The datastore does not answer: too few of its servers are up; see: rackwright mesh datastore"""

    code = "no_datastore"


class Rejected(MeshError):
    """The datastore refused the request"""

    code = "rejected"


class Compacted(MeshError):
    """What was asked for is older than what the datastore keeps"""

    code = "compacted"

    def __init__(self, revision: int) -> None:
        super().__init__(f"the datastore keeps nothing older than revision {revision}")
        self.revision = revision


class Fenced(MeshError):
    """This server no longer holds the lease, so it does nothing"""

    code = "fenced"
