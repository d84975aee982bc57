"""How a backend is made, in words that any process can follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..catalog import BACKENDS
from .base import Backend


@dataclass(frozen=True)
class BackendSpec:
    """A backend that is not there yet: workers of another process or machine load it for themselves.

    Attributes:
        kind: a name of the backend catalog, or `module:attribute`.
        settings: arguments of its `load`, where it has one, else of the thing itself; plain values.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Backend:
        """Make it, in this process.

        Raises:
            UnknownNameError: if there is nothing of that name.
            UsageError: if the settings do not fit.
        """
        module, _, attribute = self.kind.partition(":")
        made = getattr(import_module(module), attribute) if attribute else BACKENDS.load(self.kind)
        backend: Backend = getattr(made, "load", made)(**self.settings)
        return backend

    def with_settings(self, **settings: Any) -> BackendSpec:
        """The same with some settings changed."""
        return BackendSpec(self.kind, {**self.settings, **settings})


def loaded(backend: Backend | BackendSpec) -> Backend:
    """The backend itself, made if it is only described."""
    return backend.load() if isinstance(backend, BackendSpec) else backend
