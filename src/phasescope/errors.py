"""Errors that a user can act on: what was given, what is allowed, what to do."""

import re

_SECRET = re.compile(r"[^\s/'\"@]+:[^\s/'\"@]+@(?=[\w\[.])")


def hide_passwords(text: str) -> str:
    """The text without a user and password that stand in an address."""
    return _SECRET.sub("(hidden)@", text)


class PhasescopeError(Exception):
    """The base of every error that phasescope raises on purpose; its text is one line for a person."""


class UsageError(PhasescopeError, ValueError):
    """An argument, a configuration or a file does not say something that can be done."""


class UnknownNameError(UsageError):
    """A name is in no catalog; the message lists the names that are."""


class BrokenRecordError(PhasescopeError, ValueError):
    """A line of a record file cannot be read; the message names the file and the line."""


class MissingExtraError(PhasescopeError, ImportError):
    """A command needs a package that the base install leaves out; the message names the extra."""


class ServerError(PhasescopeError):
    """A server cannot be asked, or has stopped answering; what was finished is kept, and a run can go on."""
