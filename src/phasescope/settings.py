"""Settings of verbs and commands: default, range and help of each in one place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field, ValidationError

from .errors import UsageError
from .records import Record, first_problem

LOCAL, SERVER = "Models on this machine", "Server"
"""Headings of options that more than one command has."""
LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def setting(
    default: Any,
    help: str,
    *,
    panel: str | None = None,
    short: str | None = None,
    option: str | None = None,
    **limits: Any,
) -> Any:
    """A field of a settings class, which is also an option of the command line.

    Args:
        default: its value where nobody gives one.
        help: what it is, in one sentence.
        panel: under which heading the help lists it.
        short: its one-letter option, such as `-s`.
        option: its name on the command line, where that is not the field's own.
        **limits: `ge`, `gt`, `le`, `lt` and others of pydantic's `Field`.
    """
    extra: dict[str, Any] = {"panel": panel, "short": short, "option": option}
    return Field(default, description=help, json_schema_extra=extra, **limits)


class Settings(Record):
    """Settings of a verb. Each field says its default, its range and what it is."""

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Settings from what a user gave.

        Raises:
            UsageError: in one line: what was given, what is allowed.
        """
        known = {
            **cls.model_fields,
            **{str(field.alias): None for field in cls.model_fields.values() if field.alias},
        }
        refuse_unknown(values, known)
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError(_limit(error) or first_problem(error, cls.__name__)) from None

    @classmethod
    def refuse_out_of_range(cls, values: dict[str, Any]) -> None:
        """Refuse values that no settings may have, whatever the others are.

        Raises:
            UsageError: as in `checked`.
        """
        for name, value in values.items():
            try:
                cls.__pydantic_validator__.validate_assignment(cls.model_construct(), name, value)
            except ValidationError as error:
                if error.errors()[0]["loc"]:
                    raise UsageError(_limit(error) or first_problem(error, cls.__name__)) from None


def _limit(error: ValidationError) -> str | None:
    """Which limit a number is beyond, in words."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] not in LIMITS or not problem["loc"]:
        return None
    key, words = LIMITS[problem["type"]]
    limit = problem["ctx"][key]
    shown = (
        f"{limit:,}" if isinstance(limit, int) and limit < 2**40 else f"{limit:g}" if limit < 2**40 else limit
    )
    return f"{'.'.join(map(str, problem['loc']))} is {problem['input']!r:.200}; give {words} {shown}"


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a setting that there is not.

    Raises:
        UsageError: with the nearest that there is.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}"
            raise UsageError(f"{name} is no setting here; {hint}")
