"""cloud-init at the first boot of an installed system: its seed is sent over SSH, and its end waited for."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rackwright.domain.installs.cloud_init.part import FirstBoot, make_first_boot
from rackwright.domain.installs.cloud_init.status import CloudInitState, CloudInitStatus, Hide
from rackwright.domain.installs.request import RootFile
from rackwright.domain.masking import Mask
from rackwright.hammers.base import HammerFailed
from rackwright.reach.ssh_connections import Unreachable
from rackwright.store.db.session import Session
from rackwright.store.machines import install_attempts
from rackwright.store.machines.install_attempts import DueAction
from rackwright.store.store import Store

MOST_REMEMBERED = 1000


class Delivery(Protocol):
    """How a system gets its seed."""

    async def ask(self, node_id: int, label: str, hide: Hide) -> CloudInitStatus | None:
        """Return how far cloud-init of a system is; None if it has no seed `label` yet."""
        ...

    async def deliver(self, node_id: int, label: str, files: Sequence[RootFile], hide: Hide) -> CloudInitStatus:
        """Give a system the seed `label`, and return how far its cloud-init is."""
        ...


def _label(action: DueAction) -> str:
    """Return the instance id of a system: each install is a new one."""
    return f"rackwright-{action.attempt_id}"


class FirstBoots:
    """Takes installed systems through cloud-init. Any server may go on with what another began."""

    def __init__(self, store: Store, delivery: Delivery, actor: str) -> None:
        self._store = store
        self._delivery = delivery
        self._actor = actor
        self._told: dict[int, str] = {}
        """The last trouble of each attempt that its log tells."""

    async def advance(self, action: DueAction, first_boot: FirstBoot) -> bool:
        """Take a system a step further; return whether nothing is to be waited for any more.

        HammerFailed, if that cannot be told now: it is asked again, until the attempt's deadline.
        """
        mask = Mask(first_boot.secrets.values())
        try:
            status = await self._delivery.ask(action.node_id, _label(action), mask.text)
            if status is None:
                files = await asyncio.to_thread(first_boot.make_files)
                status = await self._delivery.deliver(action.node_id, _label(action), files, mask.text)
                await self._note(action, "cloud-init was given its user-data over SSH; waiting for its end")
        except Unreachable as error:
            await self._tell_once(action, mask.text(str(error)))
            raise HammerFailed(mask.text(str(error))) from None
        reason = mask.text(status.reason)
        if status.state is CloudInitState.FAILED:
            await self._store.change(
                lambda session: install_attempts.record_set_up_failure(session, action.attempt_id, reason),
                actor=self._actor,
            )
            return False
        if status.state is CloudInitState.DONE:
            await self._note(action, f"cloud-init is done, degraded: {reason}" if reason else "cloud-init is done")
            return True
        return False

    async def read(self, action: DueAction, node: str) -> FirstBoot | None:
        """Return what the cloud-init of a node is given; None if nothing.

        Its secrets are opened: never for a log, an answer or an event.
        """
        async with self._store.read() as session:
            staged = await install_attempts.read_set_up_input(session, action.attempt_id)
            attribs = (await session.catalogue()).catalogue.secret_attribs
        opened = self._store.vault.open_secrets(attribs, staged)
        settings = opened.get("provisioner")
        return make_first_boot(node, _label(action), settings) if isinstance(settings, dict) else None

    async def _tell_once(self, action: DueAction, text: str) -> None:
        if self._told.get(action.attempt_id) == text:
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told[action.attempt_id] = text
        await self._note(action, f"trying again: {text}")

    async def _note(self, action: DueAction, text: str) -> None:
        async def write(session: Session) -> None:
            await install_attempts.log_note(session, action.attempt_id, text)

        await self._store.change(write, actor=self._actor)
