"""How every causal family of `transformers` is read: a tiny random model of each, against its own fresh forwards.

    python -m benchmarks.families [FAMILY …] [--write docs/families.md]

Prints a row for each model type that `AutoModelForCausalLM` knows, as docs/families.md has them. A model has four
layers and random weights; it is asked three questions after one prefix, and its answers are held against plain forwards
of the model itself. The last line is one JSON object:

    families, shared, alone, refused, not_built    how many of each
    largest_difference                             from fresh forwards, over all that were answered, in nats per token
    seconds
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import transformers
from tests.builders.families import CAUSAL, Measured, measured

BEGIN, END = "<!-- read -->", "<!-- end of read -->"


def main() -> None:
    """Measure, print, and write the table where it is asked for."""
    parser = argparse.ArgumentParser(description="How every causal family of transformers is read.")
    parser.add_argument("family", nargs="*", help="model types; all by default")
    parser.add_argument("--write", type=Path, help="a page whose table is to be replaced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    started = time.perf_counter()
    found = [measured(kind) for kind in options.family or CAUSAL]
    table = rows(found)
    print(table)
    if options.write:
        write(options.write, table)
    ways = Counter(one.way for one in found)
    differences = [one.difference for one in found if one.difference is not None]
    print(
        json.dumps(
            {
                "families": len(found),
                **{way.replace(" ", "_"): ways[way] for way in ("shared", "alone", "refused", "not built")},
                "largest_difference": max(differences, default=None),
                "seconds": round(time.perf_counter() - started),
            }
        )
    )


def rows(found: Sequence[Measured]) -> str:
    """The table, one family a row."""
    lines = ["| model type | class | read | why |", "|---|---|---|---|"]
    lines += [f"| {one.kind} | {CAUSAL[one.kind]} | {one.way} | {_cell(one.why)} |" for one in found]
    return "\n".join(lines)


def write(page: Path, table: str) -> None:
    """Replace the table of a page, between its two marks."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")


def _cell(why: str) -> str:
    """A reason in one cell, without the last digits, which depend on the machine."""
    return re.sub(r"(\d\.\d+|\d+)(e-\d+)? nats", "… nats", why).replace("|", "\\|")


if __name__ == "__main__":
    main()
