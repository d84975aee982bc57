"""docs/results.md from the summaries that `research.small_grid` kept: the same summaries give the same bytes.

    python -m research.results [--keep results/small] [--out docs/results.md]

The last line is one JSON object: `rows`, `periods_wrong` (conditions whose phase SD excludes 0 and whose period is not
the stride), `controls_below_01` (full-attention conditions whose period has p < 0.01 after Holm).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from phasescope.files import write_atomic

from .results_tables import attempts, bars, beside, dynamics, grid, matrix, read

INTRODUCTION = """# The published grid on our own models

Two layers of width 64, trained from scratch on prose and on key-value records at once, every row on the same budget
and with the same settings but for its grid (`phasescope.training.recipes.small`). This page is made from the summaries
in `{keep}` by

    python -m research.results

and they by (`examples/botocore_text.py` tells how to fetch the text; six to ten minutes of one core a row)

    phasescope corpus runs/corpus --text text.jsonl --vocabulary 1024
    python -m research.small_grid --corpus runs/corpus --rows full:0,1,2 w8s8:0,1,2 w8s4:0,1,2 w4s4:0,1,2

A row that is not here has not been trained yet. **Held out**: nats per token on prose that was not trained on (its
documents share wording with the training documents, so it is no measure of English). **Mean**: recall of one of 16
records. **Worst**: recall at the worst of 24 residues, picked on one half of the contexts and measured on the other.
**Phase SD**: standard deviation of recall over phases without sampling noise, with its 95 % interval. **Gap**: best
less worst phase, picked on one half and measured on the other. All in points of per cent, from 72 contexts in 24
layouts.
"""


def page(keep: Path) -> tuple[str, dict[str, int]]:
    """The whole page, and the facts of the last line."""
    runs = read(keep)
    facts, checked = bars(runs)
    notes = keep / "notes.md"
    parts = [
        INTRODUCTION.format(keep=keep.as_posix()),
        "## Records side by side (prefix padding)\n\n" + grid(runs, "prefix"),
        "## Gaps between the records (in-sequence padding)\n\n" + grid(runs, "in_sequence"),
        "## Periods and controls\n\n" + checked,
        "## Beside the published numbers\n\n" + beside(runs),
        "## When a preference settles\n\n" + dynamics(runs),
        "## Attempts on the open problem\n\n" + attempts(runs),
    ]
    if matrix_text := matrix(runs):
        parts.insert(3, "## Recall by phase\n\n" + matrix_text)
    if notes.exists():
        parts.append(notes.read_text().strip() + "\n")
    return "\n".join(parts), facts


def main() -> None:
    """Write the page and print the facts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, default=Path("results/small"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    given = parser.parse_args()
    text, facts = page(given.keep)
    write_atomic(given.out, text)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
