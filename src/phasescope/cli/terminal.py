"""The one place where a command writes to a terminal: what others wrote cannot steer it.

Names, columns, paths and replies may hold escape codes, line breaks of other kinds, or marks that turn the direction of
writing. Each such character is shown as U+FFFD; only line breaks and tabs are kept.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


def printable(text: str) -> str:
    """A text without control, direction and invisible characters."""
    return STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str) -> None:
    """Print a text to standard output."""
    sys.stdout.write(printable(text) + "\n")


def say_json(text: str) -> None:
    """Print JSON to standard output; inside of it, what is not printable is escaped and means the same."""
    sys.stdout.write(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def warn(text: str) -> None:
    """Print a text to standard error."""
    sys.stderr.write(printable(text) + "\n")


class Terminal(Console):
    """A console of `rich` whose texts, those in tables too, are printable and never taken for markup."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        """Every text that is printed passes here, cells of tables among them."""
        return super().render_str(printable(text), **settings)
