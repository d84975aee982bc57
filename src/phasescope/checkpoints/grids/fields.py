"""The fields of a config.json, read one by one with a clear word about those that cannot be meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import UsageError

MOST_LAYERS = 4096
MOST_TOKENS = 2**40
"""No config means more; the bound keeps absurd numbers out of every later computation."""


class Fields:
    """A config's fields; those that are not there take the default that `transformers` gives them.

    Args:
        values: the part of the config that holds them.
        source: what error messages call it.

    Attributes:
        assumed: the defaults that were taken, as `name = value`.
    """

    def __init__(self, values: Mapping[str, Any], source: str = "config") -> None:
        self.values = values
        self.source = source
        self.assumed: list[str] = []

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def maybe(self, *names: str, least: int = 1) -> int | None:
        """A whole number under the first of these names that is given; None where none is.

        Raises:
            UsageError: for anything else than a whole number of at least `least`.
        """
        for name in names:
            if name in self:
                return self._whole(name, self.values[name], least)
        return None

    def whole(self, *names: str, default: int, least: int = 1) -> int:
        """As `maybe`, with a default that is noted as assumed."""
        found = self.maybe(*names, least=least)
        if found is None:
            self.assumed.append(f"{names[0]} = {default}")
            return default
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        if value is None:
            self.assumed.append(f"{name} = {str(default).lower()}")
            return default
        if not isinstance(value, bool):
            raise self.refused(name, value, "true or false")
        return value

    def word(self, name: str, *, default: str, known: Sequence[str] = ()) -> str:
        """A string, one of those that are known where any are listed."""
        value = self.values.get(name)
        if value is None:
            self.assumed.append(f"{name} = {default}")
            return default
        if not isinstance(value, str) or (known and value not in known):
            raise self.refused(name, value, " or ".join(map(repr, known)) or "a string")
        return value

    def wholes(self, *names: str, least: int = 0) -> list[int] | None:
        """A list of whole numbers, or None."""
        for name in names:
            if name in self:
                value = self.values[name]
                if not isinstance(value, list | tuple) or len(value) > 4 * MOST_LAYERS:
                    raise self.refused(name, value, "a list of whole numbers")
                return [self._whole(f"{name}[{place}]", item, least) for place, item in enumerate(value)]
        return None

    def part(self, name: str) -> Fields:
        """A nested part; empty where it is not given."""
        value = self.values.get(name)
        if value is None:
            return Fields({}, f"{self.source}: {name}")
        if not isinstance(value, dict):
            raise self.refused(name, value, "an object with fields of its own")
        return Fields(value, f"{self.source}: {name}")

    def layers(self, name: str = "num_hidden_layers", default: int = 32) -> int:
        """The number of layers."""
        found = self.whole(name, default=default)
        if found > MOST_LAYERS:
            raise self.refused(name, found, f"at most {MOST_LAYERS}")
        return found

    def kinds(
        self,
        layers: int,
        known: Sequence[str],
        default: Callable[[], Sequence[str]],
        *,
        name: str = "layer_types",
        renamed: Mapping[str, str] | None = None,
        assumed: bool = True,
    ) -> list[str]:
        """The kind of every layer; further entries, which describe layers for drafting, are left out.

        Args:
            layers: how many there are.
            known: the kinds of the family.
            default: the kinds that `transformers` gives where the config is silent.
            name: the field.
            renamed: older names of kinds, and what they are called now.
            assumed: the default is the class's own schedule, and not made from another field of the config.

        Raises:
            UsageError: for too few kinds, or one that the family does not have.
        """
        value = self.values.get(name)
        if value is None:
            self.assumed += [f"{name} = the class's own schedule"] if assumed else []
            return list(default())[:layers]
        if not isinstance(value, list | tuple) or not all(isinstance(kind, str) for kind in value):
            raise self.refused(name, value, "a list of names")
        kinds = [(renamed or {}).get(kind, kind) for kind in value[:layers]]
        if len(kinds) < layers:
            raise UsageError(
                f"{self.source}: {name} names {len(kinds)} layers of {layers}; give one kind per layer"
            )
        for place, kind in enumerate(kinds):
            if kind not in known:
                raise self.refused(f"{name}[{place}]", kind, " or ".join(map(repr, known)))
        return kinds

    def _whole(self, name: str, value: object, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
            raise self.refused(name, value, f"a whole number of at least {least}")
        return value

    def refused(self, name: str, value: object, allowed: str) -> UsageError:
        """The one line about a field that cannot be meant."""
        given = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
        return UsageError(f"{self.source}: {name} is {given[:60]}; it must be {allowed}")
