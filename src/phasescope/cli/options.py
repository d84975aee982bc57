"""Options that belong together as one dataclass, and commands that take several of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import wraps
from typing import Any, get_type_hints

import typer


def options_from(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of dataclasses as options after its own, and hand it one object of each.

    Typer reads a command's signature, so the command gets one with all options.

    Args:
        **groups: the dataclass of each argument by its name; each of its fields is annotated as an option.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(command, include_extras=True)
        parameters = [
            parameter.replace(annotation=own[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name not in groups
        ]
        for group in groups.values():
            hints = get_type_hints(group, include_extras=True)
            parameters += [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=hints[field.name],
                )
                for field in fields(group)
            ]

        @wraps(command)
        def complete(**given: Any) -> None:
            made = {
                name: group(**{field.name: given.pop(field.name) for field in fields(group)})
                for name, group in groups.items()
            }
            command(**made, **given)

        complete.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        complete.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return complete

    return decorate


def said(context: typer.Context, group: object) -> dict[str, Any]:
    """The fields of a group that the command line names, with their values."""
    return {
        field.name: value.value if isinstance(value := getattr(group, field.name), Enum) else value
        for field in fields(group)  # type: ignore[arg-type]  # a dataclass, as `options_from` made it
        if getattr(context.get_parameter_source(field.name), "name", "") == "COMMANDLINE"
    }
