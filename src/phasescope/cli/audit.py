"""`phasescope audit`: which phases a benchmark visits, what it could hide, and a balanced copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..auditing.settings import AuditSettings
from ..reporting.audit_page import write_audit
from ..verbs.audit import audit as audited
from .options import options_from
from .progress import bar
from .terminal import say

EXAMPLES = {
    "audit": (
        "samples.jsonl --tokenizer FOLDER --stride 4 --fix balanced.jsonl",
        "log.eval --tokenizer FOLDER --model FOLDER",
    )
}


@options_from(settings=AuditSettings)
def audit(
    settings: AuditSettings,
    source: Annotated[
        str, typer.Argument(help="A benchmark's file, a log of answers, or file.py:function for a generator.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for audit.html and audit.json.")] = Path(
        "runs/audit"
    ),
) -> None:
    """Count the phases that a benchmark visits; needs neither a model nor torch."""
    with bar() as progress:
        task = progress.add_task("samples", total=None, note="")
        found = audited(
            source,
            report=lambda done, total: progress.update(task, completed=done, total=total),
            **dict(settings),
        )
    say(write_audit(found, out))
