"""Upkeep of the shelf of images: chunks that installs still name are kept, what a killed import left is removed.

The command line puts images on the shelf and removes them, also while no server runs. It cannot ask the database, so
the server writes down beside the images what the installs name.
"""

import asyncio
import logging

from rackwright.annealer.loop import Loop
from rackwright.provision.images.shelf import Shelf
from rackwright.store.machines.install_attempts import select_named_chunks
from rackwright.store.store import Store

EVERY = 600.0
"""Seconds; far fewer than those for which chunks of a replaced image are kept whoever names them."""

log = logging.getLogger(__name__)


class ShelfUpkeep:
    """Looks after the shelf now and then, until cancelled. Each server looks after its own."""

    def __init__(self, store: Store, shelf: Shelf, every: float = EVERY) -> None:
        self.store = store
        self.shelf = shelf
        self.every = every

    async def run(self) -> None:
        await Loop(self.store, tick=self.every, purpose="look after the images").run(self.look_after)

    async def look_after(self) -> None:
        """Write down what the installs name that have not ended, then remove what nobody needs."""
        async with self.store.read() as session:
            digests = await select_named_chunks(session)
        try:
            await asyncio.to_thread(self._tidy, digests)
        except OSError as error:
            # A shelf that only root may change, or a full disk: images are served all the same.
            log.warning("What is not needed in %s was not removed: %s", self.shelf.folder, error)

    def _tidy(self, digests: set[str]) -> None:
        if self.shelf.folder.is_dir():
            self.shelf.keep_named(digests)
            self.shelf.clean()
