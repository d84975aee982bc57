"""Train and measure rows of a recipe, one after the other; what is kept is never trained again.

    python -m research.small_grid --corpus runs/corpus --rows full:0,1,2 w8s8:0,1,2 w8s4:0

Each row takes one thread. A killed run goes on where its last checkpoint stands. Summaries go to
`results/RECIPE/ROW-SEED.json`, from which `python -m research.results` makes docs/results.md. The last line is one
JSON object: `rows` kept in this run, `minutes`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from phasescope.text.corpus import Corpus
from phasescope.training import Progress, Text
from phasescope.training.recipes import RECIPES
from research.row import run_row


def main() -> None:
    """Run the rows in the order given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="small", choices=sorted(RECIPES))
    parser.add_argument("--corpus", type=Path, help="text of the mixture; recipes of records alone have none")
    parser.add_argument("--rows", nargs="+", required=True, help="ROW:SEED,SEED …")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--keep", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    corpus = None if given.corpus is None else Corpus.open(given.corpus)
    text = None if corpus is None else Text(corpus=corpus.facts.digest, vocabulary=corpus.facts.vocabulary)
    rows = RECIPES[given.recipe](text)
    started, kept = time.time(), 0
    for row, seed in wanted(given.rows, rows):
        name = f"{row}-{seed}"
        print(f"{name} …", flush=True)
        summary = run_row(
            row,
            rows[row].model_copy(update={"seed": seed}),
            corpus,
            given.runs / given.recipe / name,
            given.keep / given.recipe / f"{name}.json",
            command=f"python -m research.small_grid --recipe {given.recipe}"
            f"{'' if corpus is None else ' --corpus runs/corpus'} --rows {row}:{seed}",
            report=said,
        )
        kept += 1
        spread = {
            protocol: next(f for f in summary[protocol] if f["name"] == "phase_sd")["value"]
            for protocol in ("prefix", "in_sequence")
            if protocol in summary
        }
        print(
            f"{name}: {summary['minutes']} minutes, held out {summary.get('held_out')}, {spread}", flush=True
        )
    print(json.dumps({"rows": kept, "minutes": round((time.time() - started) / 60, 1)}))


def wanted(texts: list[str], rows: dict[str, object]) -> list[tuple[str, int]]:
    """Rows and seeds in the order given."""
    found = []
    for text in texts:
        row, _, seeds = text.partition(":")
        if row not in rows:
            raise SystemExit(f"no row {row!r}; there are {', '.join(rows)}")
        found += [(row, int(seed)) for seed in (seeds or "0").split(",")]
    return found


def said(progress: Progress) -> None:
    """A line every 250 steps."""
    if progress.step % 250 == 0:
        print(
            f"  step {progress.step}: {progress.pairs} pairs, loss {progress.loss or 0:.3f}, "
            f"accuracy {progress.accuracy or 0:.3f}, text {progress.text_loss or 0:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
