"""What the tests of the statistics share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that draws the same in every run."""
    return np.random.default_rng(20)
