"""Scorers: what counts as the right kind of answer in a text that a model wrote."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PhasescopeError, UsageError, plain

Score = Callable[[str, str], float]
"""From a text and the expected one to 0 (wrong) … 1 (right)."""

BUILT_IN: dict[str, Score] = {
    "exact": lambda text, expected: float(text.strip() == expected.strip()),
    "begins": lambda text, expected: float(text.strip().startswith(expected.strip())),
    "contains": lambda text, expected: float(expected.strip() in text),
}
ALLOWED = "exact, begins, contains, regex:PATTERN, module:function or file.py:function"


@dataclass(frozen=True)
class Scorer:
    """How a generated text is scored.

    Attributes:
        given: as the user named it.
        function: from the text and the expected text to 0 … 1.
        needs_expected: whether a prompt without an expected text cannot be scored.
        digest: SHA-256 of the file that holds a function of the user's own; empty for others.
    """

    given: str
    function: Score = field(repr=False, compare=False)
    needs_expected: bool = False
    digest: str = ""

    @classmethod
    def load(cls, given: str) -> Scorer:
        """Find a scorer by name.

        `module:function` and `file.py:function` import and run the user's own code: it is called with the
        text, and answers with a truth value or a number from 0 to 1.

        Raises:
            UsageError: for an unknown scorer, a broken pattern, or a function that cannot be loaded.
        """
        if given in BUILT_IN:
            return cls(given, BUILT_IN[given], needs_expected=True)
        if given.startswith("regex:"):
            return cls(given, _pattern(given.removeprefix("regex:")))
        place, _, name = given.rpartition(":")
        if not place or not name.isidentifier():
            raise UsageError(f"unknown scorer {given!r}; give {ALLOWED}")
        function = own_function(place, name)
        file = Path(place)
        digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.suffix == ".py" else ""
        return cls(given, lambda text, expected: _checked(function(text)), digest=digest)

    def score(self, text: str, expected: str) -> float:
        """The score of a text.

        Raises:
            UsageError: if a function of the user's own fails, or gives no score.
        """
        try:
            return self.function(text, expected)
        except Exception as error:
            kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
            raise UsageError(f"scorer {self.given} failed on {plain(repr(text))}: {kind}{error}") from None


def _pattern(pattern: str) -> Score:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"scorer regex:{pattern} is no regular expression: {error}") from None
    return lambda text, expected: float(compiled.search(text) is not None)


def own_function(place: str, name: str) -> Callable[..., Any]:
    """A function of the user's own, from a file of Python or a module; modules are found in the working directory too.

    Raises:
        UsageError: if it is not there, or its module cannot be imported.
    """
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
            try:
                module = importlib.import_module(place)
            finally:
                sys.path.pop(0)
        elif Path(place).is_file():
            spec = importlib.util.spec_from_file_location(f"_own_{Path(place).stem}", place)
            assert spec is not None  # as its name ends in .py
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            # Dataclasses look their module up by name while it is being loaded.
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            raise UsageError(f"no file {place}; name a function as file.py:function")
    except PhasescopeError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{place} has no function {name!r}; name one as file.py:function")
    return function  # type: ignore[no-any-return]  # getattr gives Any


def _checked(value: Any) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not 0 <= score <= 1:
        raise UsageError(f"it answered {plain(repr(value))}; a truth value or a number from 0 to 1 is needed")
    return score
