"""What every integration test gets: a product that gives nothing up because this machine is busy, and does not hash
passwords slowly on purpose."""

from functools import partial

import pytest
from argon2 import PasswordHasher
from tests.support.waiting import PATIENCE

from rackwright.annealer import hooks, judged
from rackwright.api import passwords


@pytest.fixture(autouse=True)
def patient_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give hooks as much time as a slow machine needs. What is to be late sets a time of its own."""
    monkeypatch.setattr(hooks, "BUDGET", PATIENCE)
    monkeypatch.setattr(judged, "BUDGET", PATIENCE)


@pytest.fixture(autouse=True)
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every first start hashes the administrator's password. The same, only faster; servers that are processes of their
    own do it as always."""
    monkeypatch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1))
