"""Lets a check that fails outside the test's own file show both sides, as pytest does within it."""

import pytest

pytest.register_assert_rewrite("tests.integration.store.model.model_checks")
