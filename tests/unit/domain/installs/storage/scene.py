"""Machines with disks, for tests of storage layouts."""

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.request import InstallRequest

GIB = 1 << 30
SSD: JsonObject = {"bus": "nvme", "rotational": False}
SPINNING: JsonObject = {"bus": "scsi", "rotational": True}
EQUAL: list[Json] = [{"name": f"virtio-LAB{n}", "bytes": 8 * GIB, "serial": f"LAB{n}"} for n in range(4)]
"""Four disks of the same size."""
MIXED: list[Json] = [
    {"name": "wwn-0x5000c50001", "bytes": 4000 * GIB, "wwn": "naa.5000c50001", "serial": "Z1", **SPINNING},
    {"name": "wwn-0x5000c50002", "bytes": 4000 * GIB, "wwn": "0x5000C50002", "serial": "Z2", **SPINNING},
    {"name": "nvme-fast_1", "bytes": 480 * GIB, "serial": "N1", **SSD},
    {"name": "nvme-fast_2", "bytes": 480 * GIB, "serial": "N2", **SSD},
    {"name": "nvme-small", "bytes": 64 * GIB, "serial": "N3", **SSD},
    {"name": "usb-unknown", "serial": "U1", "bus": "usb"},
]


def facts(disks: list[Json], firmware: str = "bios") -> JsonObject:
    return {"disks": disks, "firmware": {"mode": firmware}}


def request(layout: Json, disks: list[Json] | None = None, firmware: str = "bios", disk: str = "") -> InstallRequest:
    settings: JsonObject = {} if layout is None else {"storage": layout}
    return InstallRequest("n1", settings | ({"disk": disk} if disk else {}), facts(disks or EQUAL, firmware))


EVERYTHING = """\
storage:
  version: 1
  config:
    - {id: fast, type: disk, match: {bus: nvme, size: ">=100G"}, count: 2, ptable: gpt, wipe: superblock}
    - {id: small, type: disk, serial: N3, ptable: gpt}
    - {id: slow, type: disk, match: {rotational: true}, count: rest}
    - {id: bios, type: partition, device: fast, size: 1M, flag: bios_grub}
    - {id: boot-part, type: partition, device: fast, size: 1G, flag: raid}
    - {id: root-part, type: partition, device: fast, size: -1, flag: raid}
    - {id: swap-part, type: partition, device: small, size: 8GB, flag: swap, number: 3}
    - {id: log-part, type: partition, device: small, size: 20G}
    - {id: boot-array, type: raid, name: boot, raidlevel: 1, devices: [boot-part]}
    - {id: root-array, type: raid, name: root, raidlevel: mirror, devices: [root-part]}
    - {id: data-array, type: raid, name: data, raidlevel: 0, devices: [slow]}
    - {id: vg, type: lvm_volgroup, name: vg-0, devices: [root-array]}
    - {id: lv-root, type: lvm_partition, name: root, volgroup: vg, size: 50G}
    - {id: lv-home, type: lvm_partition, name: home-1, volgroup: vg}
    - {id: boot-fs, type: format, fstype: ext4, volume: boot-array, label: boot}
    - {id: root-fs, type: format, fstype: xfs, volume: lv-root}
    - {id: home-fs, type: format, fstype: ext4, volume: lv-home}
    - {id: data-fs, type: format, fstype: xfs, volume: data-array}
    - {id: log-fs, type: format, fstype: ext4, volume: log-part}
    - {id: swap-fs, type: format, fstype: swap, volume: swap-part}
    - {id: home-mount, type: mount, device: home-fs, path: /home, options: "noatime,nodev"}
    - {id: log-mount, type: mount, device: log-fs, path: /var/log}
    - {id: data-mount, type: mount, device: data-fs, path: /srv}
    - {id: boot-mount, type: mount, device: boot-fs, path: /boot}
    - {id: root-mount, type: mount, device: root-fs, path: /}
"""
