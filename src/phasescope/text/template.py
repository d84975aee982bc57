"""Chat templates: programs that come with a checkpoint, run without reach, within bounds of time and memory."""

from __future__ import annotations

import ctypes
import datetime
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

DAY = datetime.date(2025, 1, 1)
"""The day that a chat template gets as today's, so that the same run has the same tokens tomorrow."""
SECONDS = 10.0
"""For one conversation; real templates take milliseconds."""
ROOM = 2**29
"""Bytes that one conversation may take beyond what the process has."""
LONGEST = 10**7
"""Characters or items that a repetition may make, and bits of a product of numbers."""
Made = TypeVar("Made")


class _Late(BaseException):
    """Raised in a template that takes too long; no `except` of a library takes it for its own."""


class _Generation(Extension):
    """The block `{% generation %}`, which marks the model's own words for training and prints them as they are."""

    tags = {"generation"}  # noqa: RUF012 (declared by jinja as it is)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Take the block's content for the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """What chat templates expect of jinja, with no reach outside of the template and no huge products."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A product, if it is no longer than `LONGEST`: none can be interrupted while it is made."""
        sizes = [len(side) if hasattr(side, "__len__") else None for side in (left, right)]
        numbers = [side for side in (left, right) if isinstance(side, int)]
        if operator == "**":
            large = len(numbers) == 2 and abs(left).bit_length() * max(right, 0) > LONGEST
        elif len(numbers) == 2:
            large = sum(number.bit_length() for number in numbers) > LONGEST
        else:
            large = any(size is not None and size * abs(n) > LONGEST for size in sizes for n in numbers)
        if large:
            raise TemplateError(f"it makes more than {LONGEST:,} of something")
        return super().call_binop(context, operator, left, right)


def compiled(source: str) -> Template:
    """A template, ready to be rendered.

    Raises:
        TemplateError: if it is none, or what it computes at once takes too long or too much.
    """
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = DAY.strftime
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    return bounded(lambda: environment.from_string(source))


def rendered(template: Template, **given: Any) -> str:
    """What a template makes of its variables.

    Raises:
        TemplateError: if it takes more than `SECONDS` or `ROOM`.
        Exception: whatever the template itself raises.
    """
    return bounded(lambda: str(template.render(**given)))


def bounded(make: Callable[[], Made]) -> Made:
    """Run Python code of others in a thread of its own, which is stopped when its time is over.

    Memory is bounded by the process's address space, where the system has such a limit.

    Raises:
        TemplateError: if it takes too long or too much.
    """
    found: list[Made] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    with _limited():
        thread.start()
        thread.join(SECONDS)
        while thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Late)
            )
            thread.join(0.1)
    if not failed:
        return found[0]
    if isinstance(failed[0], _Late):
        raise TemplateError(f"it takes more than {SECONDS:g} seconds")
    if isinstance(failed[0], MemoryError):
        raise TemplateError(f"it takes more than {ROOM // 2**20} MiB of memory")
    raise failed[0]


@contextmanager
def _limited() -> Iterator[None]:
    """The address space bounded to what the process has and `ROOM` more; nothing where that cannot be said."""
    try:
        import resource
        from pathlib import Path

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        old = resource.getrlimit(resource.RLIMIT_AS)
        most = pages * resource.getpagesize() + ROOM
        bounds = [most, *(limit for limit in old if limit != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_AS, (min(bounds), old[1]))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, old)
