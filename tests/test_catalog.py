"""The lazy name tables."""

import subprocess
import sys

import pytest

from phasescope import BACKENDS, COMPRESSORS, ENGINES, PROTOCOLS, UnknownNameError, UsageError
from phasescope.catalog import Table


@pytest.mark.parametrize("table", [COMPRESSORS, PROTOCOLS, BACKENDS, ENGINES], ids=lambda table: table.kind)
def test_every_built_in_name_loads(table: Table) -> None:
    """No line of a table points nowhere."""
    for name in table.names():
        assert callable(table.load(name))


def test_a_protocol_carries_the_name_it_is_listed_under() -> None:
    """What a run's description calls a protocol can be looked up again."""
    assert [PROTOCOLS.load(name).name for name in PROTOCOLS.names()] == PROTOCOLS.names()


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    """A typing error is answered with what to type."""
    with pytest.raises(
        UnknownNameError,
        match=r"unknown protocol 'prefx'; known: in_sequence, needle, prefix, query, records, sweep; did .*'prefix'",
    ):
        PROTOCOLS.load("prefx")


def test_a_name_that_was_added_loads_and_cannot_change_its_meaning() -> None:
    """One process can bring its own things, but not replace others'."""
    table = Table("colour", {"red": "builtins:int"})
    table.add("blue", float)
    table.add("blue", float)
    assert table.names() == ["blue", "red"]
    assert table.load("blue") is float
    for name in ("red", "blue"):
        with pytest.raises(UsageError, match="already stands for something else"):
            table.add(name, str)


def test_a_foreign_entry_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package adds a name through the group of its kind."""
    from importlib.metadata import EntryPoint

    point = EntryPoint("odd", "builtins:complex", "phasescope.colours")
    monkeypatch.setattr(
        "phasescope.catalog.entry_points", lambda group: [point] if group == point.group else []
    )
    assert Table("colour", {}).load("odd") is complex


def test_names_are_listed_without_importing_torch() -> None:
    """The base install has no torch and can still say what there is, run planted answers and plan."""
    code = (
        "import sys, phasescope, phasescope.protocols, phasescope.backends, phasescope.running.runner\n"
        "print(phasescope.BACKENDS.names(), sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['openai', 'planted', 'transformers'] []"
