"""Nothing that others wrote steers the terminal: one place writes to it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.table import Table

from phasescope.cli import terminal
from phasescope.cli.terminal import STEERING, Terminal, say, say_json, warn
from tests.cli.in_process import phasescope

CLI = Path(terminal.__file__).parent
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202egpj.exe\r\x9b31m\ud800"


def test_text_and_tables_are_printed_without_control_characters(capsys):
    """Whether it is a line, a cell or a title; breaks and tabs stay."""
    say(f"a\tb\n{ESCAPE}")
    warn(ESCAPE)
    out = io.StringIO()
    table = Table("name", title=f"t {ESCAPE}")
    table.add_row(f"cell {ESCAPE}")
    console = Terminal(file=out, width=200)
    console.print(table)
    console.print(f"[red]{ESCAPE}[/red] :smile:")
    shown = capsys.readouterr()
    assert shown.out.startswith("a\tb\n\N{REPLACEMENT CHARACTER}]0;owned")
    for text in (shown.out, shown.err, out.getvalue()):
        assert not STEERING.search(text)
        assert "owned" in text
    assert "[red]" in out.getvalue()
    assert ":smile:" in out.getvalue()


def test_json_means_the_same(capsys):
    """Inside of JSON such characters are escaped, not replaced."""
    say_json(json.dumps({"name": "a\u202eb\u200d"}, ensure_ascii=False) + "\n")
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"name": "a\u202eb\u200d"}
    assert not STEERING.search(shown)


def test_no_command_writes_past_it():
    """`print` and `Console` stand in no other file of the command line but the first one, which imports nothing."""
    for file in CLI.glob("*.py"):
        if file.name in ("terminal.py", "__init__.py", "interrupt.py"):
            continue
        assert not re.search(r"(?<![\w.])(print|Console)\(", file.read_text()), file.name


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("audit", "columns.csv", "--prompt", "none"), 2),
        (("measure", ESCAPE[:-1], "--out", "x"), 2),
        (("report", f"there{ESCAPE[:-1]}"), 2),
        ((f"comm{ESCAPE[:-1]}",), 2),
        (("warn", "--profile", "p.json", "prompt.txt"), 2),
    ],
)
def test_messages_name_foreign_text_without_obeying_it(words, code, tmp_path):
    """Columns, model names, paths and words of the command line, in error lines."""
    (tmp_path / "columns.csv").write_text(f"a,{ESCAPE[:-1].replace(chr(13), '')}\n1,2\n", encoding="utf-8")
    (tmp_path / "p.json").write_text(json.dumps({"schema": 1, "profiles": [{"condition": ESCAPE[:-1]}]}))
    (tmp_path / "prompt.txt").write_text("x")
    said = phasescope(*words, code=code, cwd=tmp_path)
    assert not STEERING.search(said.replace("\r", ""))
