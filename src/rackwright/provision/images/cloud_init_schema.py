"""The schema of an image's own cloud-init, by which user-data is checked before a machine is touched."""

from rackwright.domain.installs.cloud_init.schema import LONGEST_SCHEMA
from rackwright.domain.installs.request import CloudInitSchema
from rackwright.provision.images.shelf import CLOUD_SCHEMA_FILE, NoImage, Shelf


def read_schema(shelf: Shelf, system: str) -> CloudInitSchema | None:
    """Return the schema of an image, which tells whether it has cloud-init; None if there is no such image."""
    try:
        image = shelf.find(system)
        file = image.files.get(CLOUD_SCHEMA_FILE)
        if file is None:
            return CloudInitSchema(system, None)
        text = "" if file.size > LONGEST_SCHEMA else file.path.read_text(errors="replace")
    except (NoImage, FileNotFoundError):  # or it was just replaced by a new one
        return None
    return CloudInitSchema(system, text)
