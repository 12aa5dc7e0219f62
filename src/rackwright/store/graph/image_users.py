"""Which nodes use an image: they were installed with it last, are being installed, or are planned to be."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.planned_installs import JIG_KIND, select_planned_installs
from rackwright.store.machines.nodes import NODES


class ImageUse(StrEnum):
    """What a node has to do with an image."""

    INSTALLED = "installed"
    """It was installed with the image last."""
    INSTALLING = "installing"
    PLANNED = "planned"
    """A noderole that is not ACTIVE would install it."""


@dataclass(frozen=True)
class ImageUser:
    """A node that uses an image."""

    node: str
    use: ImageUse


_ATTEMPTS = """
SELECT DISTINCT ON (n.name) n.name, a.target_os, a.ended_at IS NULL AS is_open
FROM install_attempts a JOIN nodes n ON n.id = a.node_id
WHERE (a.ended_at IS NULL OR a.stage = :done) AND {seen} ORDER BY n.name, a.id DESC
"""

_NODEROLES = """
SELECT nr.id FROM node_roles nr JOIN nodes n ON n.id = nr.node_id
JOIN roles r ON r.id = nr.role_id JOIN jigs j ON j.name = r.jig AND j.kind = :kind
WHERE nr.state <> :active AND {seen}
"""


async def select_image_users(session: Session, visible: Visibility) -> Mapping[str, list[ImageUser]]:
    """Return the nodes that use images, by the image's name, with all that may be seen."""
    seen = visible.condition(NODES.seen)
    users: dict[str, dict[str, ImageUse]] = {}
    planned = await session.rows(_NODEROLES.format(seen=seen), kind=JIG_KIND, active=int(ACTIVE), **visible.values)
    for install in await select_planned_installs(session, [row.id for row in planned]):
        if install.os is not None:
            users.setdefault(install.os, {})[install.node] = ImageUse.PLANNED
    attempts = await session.rows(_ATTEMPTS.format(seen=seen), done=Stage.DONE.value, **visible.values)
    for row in attempts:
        use = ImageUse.INSTALLING if row.is_open else ImageUse.INSTALLED
        users.setdefault(row.target_os, {})[row.name] = use
    return {image: [ImageUser(node, uses[node]) for node in sorted(uses)] for image, uses in users.items()}
