"""Lazy tables from names to things: built-in ones are one line here, others come by entry point.

A table holds import paths, so that listing names imports nothing and a base install without torch
can still say what there is.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from .errors import UnknownNameError, UsageError


class Table:
    """Names of one kind, each standing for `module:attribute`, loaded when first asked for.

    A package adds its own through the entry-point group `phasescope.<kind>s`; in one process `add` does.

    Args:
        kind: the noun in the singular, as error messages use it.
        built_in: name → `module:attribute`.
    """

    def __init__(self, kind: str, built_in: dict[str, str]) -> None:
        self.kind = kind
        self._built_in = dict(built_in)
        self._added: dict[str, Any] = {}

    def _foreign(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=f"phasescope.{self.kind}s")}

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._built_in, *self._added, *self._foreign()})

    def add(self, name: str, thing: Any) -> None:
        """Make a thing known in this process; a name that stands for something else is refused."""
        if name in self._built_in or self._added.get(name, thing) is not thing:
            raise UsageError(f"{self.kind} {name!r} already stands for something else; choose another name")
        self._added[name] = thing

    def load(self, name: str) -> Any:
        """The thing behind a name.

        Raises:
            UnknownNameError: if no table line, addition or entry point has that name.
        """
        if name in self._added:
            return self._added[name]
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            return getattr(import_module(module), attribute)
        foreign = self._foreign()
        if name in foreign:
            return foreign[name].load()
        raise UnknownNameError.among(f"unknown {self.kind} {name!r}; known:", name, self.names())


COMPRESSORS = Table(
    "compressor",
    {
        "uniform": "phasescope.compressors.uniform:Uniform",
        "scalar_gate": "phasescope.compressors.scalar_gate:ScalarGate",
        "vector_gate": "phasescope.compressors.vector_gate:VectorGate",
        "dynamic": "phasescope.compressors.dynamic:Dynamic",
        "csa": "phasescope.compressors.csa:CSA",
        "hca": "phasescope.compressors.hca:HCA",
    },
)
PROTOCOLS = Table(
    "protocol",
    {
        "prefix": "phasescope.protocols.kv_retrieval:PrefixPadding",
        "in_sequence": "phasescope.protocols.kv_retrieval:InSequencePadding",
        "query": "phasescope.protocols.kv_retrieval:QueryPadding",
        "sweep": "phasescope.protocols.padding_sweep:PaddingSweep",
        "records": "phasescope.mitigations.unequal_records:Records",
        "needle": "phasescope.protocols.needle:Needle",
    },
)
BACKENDS = Table(
    "backend",
    {
        "openai": "phasescope.backends.openai.backend:OpenAIBackend",
        "planted": "phasescope.backends.planted:Planted",
        "transformers": "phasescope.backends.transformers.backend:TransformersBackend",
    },
)
ENGINES = Table(
    "engine",
    {
        "local": "phasescope.running.engine:Local",
        "processes": "phasescope.running.processes:Processes",
        "ray": "phasescope.running.ray:Ray",
    },
)
