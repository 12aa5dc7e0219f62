"""What every integration test gets: a product that gives nothing up because this machine is busy."""

import pytest
from tests.support.waiting import PATIENCE

from rackwright.annealer import hooks, judged


@pytest.fixture(autouse=True)
def patient_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give hooks as much time as a slow machine needs. What is to be late sets a time of its own."""
    monkeypatch.setattr(hooks, "BUDGET", PATIENCE)
    monkeypatch.setattr(judged, "BUDGET", PATIENCE)
