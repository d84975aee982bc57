"""Options of commands from settings classes: default, range and help are those of the class."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import wraps
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from ..errors import hide_passwords
from ..settings import Settings
from . import WORDS

Option = inspect.Parameter
ADDRESS = re.compile(r"[a-z]+://[^\s']+")


def settings_options(kind: type[Settings], *, leave_out: Collection[str] = ()) -> list[Option]:
    """The fields of a settings class as options; a value that is not given is the class's own.

    Args:
        kind: the class; ranges are left to it, so that they are refused in its words.
        leave_out: fields that are no options.
    """
    hints = get_type_hints(kind)
    return [
        _option(name, field, hints[name])
        for name, field in kind.model_fields.items()
        if name not in leave_out and field.description is not None
    ]


def _option(name: str, field: FieldInfo, hint: Any) -> Option:
    extra = _extra(field)
    long = f"--{extra.get('option') or name.replace('_', '-')}"
    names = [f"{long}/--no-{long[2:]}" if field.default is True else long]
    names += [short] if (short := extra.get("short")) else []
    option = typer.Option(*names, help=field.description, rich_help_panel=extra.get("panel"))
    required = field.is_required()
    kind, default = _typed(hint, None if required else field.get_default(call_default_factory=True))
    return Option(
        _parameter(name, field), Option.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _extra(field: FieldInfo) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _parameter(name: str, field: FieldInfo) -> str:
    """What an option is called as an argument in Python."""
    return str(_extra(field).get("option") or name).replace("-", "_")


def _typed(hint: Any, default: Any) -> tuple[Any, Any]:
    """What typer reads: tuples are given one by one, and what may be missing is None."""
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]] | None, list(default) or None  # type: ignore[misc]
    if get_origin(hint) in (UnionType, Union) and int in get_args(hint) and len(get_args(hint)) > 2:
        return str, str(default)  # one of several forms, which the command reads
    return (hint if default is not None else hint | None), default


def options_from(**groups: type | list[Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command further options after its own, and hand each group over as one argument.

    Typer reads a command's signature, so the command gets one with all options.

    Args:
        **groups: by the argument's name, options (handed over as a dictionary), a settings class (handed over as
            its object), or a dataclass whose fields are annotated as options (likewise).
    """
    made = {name: group if isinstance(group, list) else _fields(group) for name, group in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(command, include_extras=True)
        parameters = [
            parameter.replace(annotation=own[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name not in groups
        ]
        parameters += [option for options in made.values() for option in options]

        @wraps(command)
        def complete(**given: Any) -> None:
            collected: dict[str, Any] = {}
            for name, group in groups.items():
                values = {option.name: given.pop(option.name) for option in made[name]}
                collected[name] = values if isinstance(group, list) else _made(group, values)
            command(**collected, **given)

        complete.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        complete.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return complete

    return decorate


def _made(group: type, values: dict[str, Any]) -> Any:
    """The object of a group; an option that was not given keeps the class's own default."""
    if not issubclass(group, Settings):
        return group(**values)
    given = {
        name: values[parameter]
        for name, field in group.model_fields.items()
        if (parameter := _parameter(name, field)) in values and values[parameter] is not None
    }
    return group.checked(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})


def _fields(group: type) -> list[Option]:
    if issubclass(group, Settings):
        return settings_options(group)
    assert is_dataclass(group)
    hints = get_type_hints(group, include_extras=True)
    return [
        Option(field.name, Option.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def command_line() -> str:
    """The command that is running, as it was given; where a server is, is nobody else's business."""
    return ADDRESS.sub("URL", hide_passwords(shlex.join(["phasescope", *WORDS.get()])))


def spoken(context: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that the command line names."""
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in values.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
