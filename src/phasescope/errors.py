"""Errors that a user can act on: what was given, what is allowed, what to do."""

import difflib
import errno
import re
import unicodedata
from collections.abc import Iterable
from typing import Self

_SECRET = re.compile(r"[^\s/'\"@]+:[^\s/'\"@]+@(?=[\w\[.])")


def hide_passwords(text: str) -> str:
    """The text without a user and password that stand in an address."""
    return _SECRET.sub("(hidden)@", text)


def plain(text: str, limit: int = 60) -> str:
    """A text as it may stand in a line: without control and direction characters, and not too long."""
    kept = "".join(
        c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text[: 4 * limit]
    )
    return kept if len(kept) <= limit else kept[: limit - 1].rstrip() + "…"


def remedy(error: OSError) -> str:
    """What to do when the operating system refuses a file: more space, or another path."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and give the same command again; what was finished is kept"
    return "give a path that can be read and written"


class PhasescopeError(Exception):
    """The base of every error that phasescope raises on purpose; its text is one line for a person."""


class UsageError(PhasescopeError, ValueError):
    """An argument, a configuration or a file does not say something that can be done."""


class UnknownNameError(UsageError):
    """A name is in no catalog; the message lists the names that are."""

    @classmethod
    def among(cls, problem: str, name: str, known: Iterable[str]) -> Self:
        """What is wrong, with the known names and the nearest of them."""
        names = list(known)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return cls(f"{problem} {', '.join(names)}{hint}")


class BrokenRecordError(PhasescopeError, ValueError):
    """A line of a record file cannot be read; the message names the file and the line."""


class MissingExtraError(PhasescopeError, ImportError):
    """A command needs a package that the base install leaves out; the message names the extra."""


def installing(extra: str) -> str:
    """How an extra is installed. phasescope is on no index: its name there would be somebody else's."""
    return (
        f"pip install '.[{extra}]' in a clone of phasescope, or pip install 'WHEEL[{extra}]' with its wheel"
    )


class ServerError(PhasescopeError):
    """A server cannot be asked, or has stopped answering; what was finished is kept, and a run can go on."""


def first_line(error: BaseException) -> str:
    """An error of another library in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_failure(error: BaseException) -> bool:
    """Whether a library failed: by an exception, or by a panic of its Rust code, which is no `Exception` in Python."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
