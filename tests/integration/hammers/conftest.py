"""Longer time limits for hammers, so that none gives up because the machine of the tests is busy."""

import pytest
from tests.support.waiting import PATIENCE

from rackwright.hammers import qemu, redfish, ssh


@pytest.fixture(autouse=True)
def patient_hammers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "SECONDS", PATIENCE)
    monkeypatch.setattr(qemu, "SECONDS", PATIENCE)
    monkeypatch.setattr(redfish, "DEADLINE", PATIENCE)
