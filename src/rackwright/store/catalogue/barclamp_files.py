"""Store and read the files of barclamps by digest: import writes them, every server that runs them reads them.

Files that a barclamp no longer has are kept for as long as the runs that may have used them, then retention deletes
them.
"""

from collections.abc import Sequence

from rackwright.domain.catalogue import Barclamp
from rackwright.store.db.session import Session


async def keep_contents(session: Session, barclamps: Sequence[Barclamp]) -> None:
    """Store the files of barclamps that are imported now, and note until when the files they replace were used."""
    await session.run(
        "UPDATE contents SET used_at = now() WHERE digest IN (SELECT digest FROM barclamps WHERE name = ANY (:names))",
        names=[barclamp.name for barclamp in barclamps],
    )
    for barclamp in barclamps:
        if barclamp.digest:
            await session.run(
                "INSERT INTO contents (digest, archive) VALUES (:digest, :archive)"
                " ON CONFLICT (digest) DO UPDATE SET used_at = now()",
                digest=barclamp.digest,
                archive=barclamp.archive,
            )


async def read_content(session: Session, digest: str) -> bytes | None:
    """Return the archive with this digest; None if the database has none."""
    archive = await session.value("SELECT archive FROM contents WHERE digest = :digest", digest=digest)
    return None if archive is None else bytes(archive)
