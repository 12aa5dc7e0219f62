"""The seed of an installed system: the files by which its cloud-init finds user-data, and by which both get along.

They are sent over SSH to the pinned host key, never served, so a seed may hold secrets.
"""

from collections.abc import Mapping

import yaml

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.cloud_init.secret_references import find_references, put_secrets, put_secrets_in
from rackwright.domain.installs.cloud_init.user_data import CLOUD_CONFIG, UserData
from rackwright.domain.installs.request import RootFile

SEED = "/var/lib/cloud/seed/nocloud"
CONFIG = "/etc/cloud/cloud.cfg.d/95-rackwright.cfg"
# One line each: the generator of cloud-init reads this file by a shell script that knows no other lists.
OURS = """\
# Written by Rackwright when it gave this machine its user-data. What user-data says counts more.
datasource_list: [ NoCloud ]
# The network is that of the installer: provisioner-network, or DHCP.
network: {config: disabled}
# The server logs in as root, and knows this machine by its host key.
disable_root: false
ssh_deletekeys: false
ssh_genkeytypes: [ed25519]
preserve_hostname: true
manage_etc_hosts: false
# Partitions and file systems are those of the installer.
growpart: {mode: "off"}
resize_rootfs: false
apt: {preserve_sources_list: true}
# The image has the locale C.UTF-8; without this, cloud-init makes en_US, for which images lack what it takes.
locale: "false"
"""


def make_seed(
    node: str, instance_id: str, data: UserData, meta_data: JsonObject, secrets: Mapping[str, str]
) -> tuple[RootFile, ...]:
    """Return the files of a seed, with secrets in place of their references."""
    described = {"instance-id": instance_id, "local-hostname": node, **meta_data}
    return (
        RootFile(CONFIG, OURS),
        RootFile(f"{SEED}/meta-data", _dump(described), 0o600),
        RootFile(f"{SEED}/user-data", _render_user_data(data, secrets), 0o600),
    )


def _render_user_data(data: UserData, secrets: Mapping[str, str]) -> str:
    """Return user-data as it was written if it has no references; else the same document with the secrets in it."""
    if not any(True for _ in find_references(data)):
        return data.text
    if data.document is None:
        return put_secrets(data.text, secrets)
    return f"{CLOUD_CONFIG}\n{_dump(put_secrets_in(data.document.plain(), secrets))}"


def _dump(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False)
    return text
