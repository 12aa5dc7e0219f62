"""Which agent an image of sledgehammer has: one that is too old does not know what the server relies on."""

from rackwright.domain.architectures import build_command
from rackwright.provision.images.shelf import NoImage, Shelf

KEY = "agent"
"""The key in what an image tells about itself."""
NUMBER = 2
"""The agent's number, to be raised when the installer must know something that it did not know before.

2: it compares the disks with what was confirmed, before it writes. One that does not must not be let near a disk.
"""


def check_agent(shelf: Shelf, image: str) -> None:
    """Raise NoImage if there is no such image of sledgehammer, or its agent is too old."""
    number = shelf.find(image).about.get(KEY, "")
    if not number.isdecimal() or int(number) < NUMBER:
        raise NoImage(
            f"The image of {image} is older than this server: its installer does not look at what is on a disk "
            f"before it writes. Make it anew: {build_command(image)}"
        )
