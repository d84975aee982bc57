"""A pytest plug-in: the fixture `phasescope_check` gates an engine's test suite on `phasescope check`.

Nothing is imported before a test asks for it, as pytest loads plug-ins in every project.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def phasescope_check() -> Callable[..., Any]:
    """`phasescope.testing.assert_engine_invariant`: holds a model, or any `EngineUnderTest`, to every invariance."""
    from . import assert_engine_invariant

    return assert_engine_invariant
