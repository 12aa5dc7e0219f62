"""What every integration test gets: a product that gives nothing up because this machine is busy, and does not hash
passwords slowly on purpose; and an etcd for those who ask for one."""

from collections.abc import Iterator
from functools import partial

import pytest
from argon2 import PasswordHasher
from tests.support.mesh.etcd import one_etcd
from tests.support.mesh.signing_members import belief_of
from tests.support.waiting import PATIENCE

from rackwright.annealer import hooks, veto
from rackwright.api.auth import passwords
from rackwright.mesh.runs.record_verifier import RecordVerifier


@pytest.fixture(autouse=True)
def patient_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give hooks as much time as a slow machine needs. What is to be late sets a time of its own."""
    monkeypatch.setattr(hooks, "HOOK_BUDGET_SECONDS", PATIENCE)
    monkeypatch.setattr(veto, "HOOK_BUDGET_SECONDS", PATIENCE)


@pytest.fixture(autouse=True)
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every first start hashes the administrator's password. The same, only faster; servers that are processes of their
    own do it as always."""
    monkeypatch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture(scope="module")
def etcd_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real etcd for all tests of a file. It may not answer yet."""
    with one_etcd(tmp_path_factory.mktemp("etcd")) as address:
        yield address


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> RecordVerifier:
    """That of s1."""
    return belief_of(tmp_path_factory.mktemp("ca"))
