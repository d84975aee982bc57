"""The dispatcher of one process, and specs of backends."""

from __future__ import annotations

import pytest

from phasescope import UnknownNameError, WindowGrid
from phasescope.backends import BackendSpec, Planted
from phasescope.running.engine import Dispatcher

SPEC = BackendSpec("planted", {"grid": WindowGrid(2, 2), "curve": (0.5, 0.5)})


def test_a_desk_holds_one_loaded_backend_at_a_time() -> None:
    """It is loaded once for consecutive batches, and again after another took its place."""
    live = Planted(grid=WindowGrid(2, 2), curve=(0.5, 0.5))
    dispatcher = Dispatcher([SPEC, SPEC.with_settings(name="other"), live, SPEC])
    first = dispatcher.backend(0)
    assert dispatcher.backend(0) is dispatcher.backend(3) is first
    assert dispatcher.backend(2) is live
    assert dispatcher.backend(0) is first
    assert dispatcher.backend(1).name == "other"
    assert dispatcher.backend(0) is not first


def test_a_backend_introduces_itself_with_its_vocabulary_where_needed() -> None:
    """A backend without one is not asked for it."""
    dispatcher = Dispatcher([SPEC])
    assert dispatcher.introduce(0, False).vocabulary is None
    assert (
        dispatcher.introduce(0, True).vocabulary
        == Planted(grid=WindowGrid(2, 2), curve=(0.5, 0.5)).vocabulary()
    )


def test_a_spec_is_a_catalog_name_or_an_import_path() -> None:
    """Anything else is one line with the names that are known."""
    path = BackendSpec("phasescope.backends.planted:Planted", SPEC.settings)
    assert path.load().describe() == SPEC.load().describe()
    with pytest.raises(UnknownNameError, match="did you mean 'planted'"):
        BackendSpec("plantd").load()
