"""Cost of long contexts: prefill, decoding and training against full attention and DeepSeek-V4's own code.

    python -m research.linear_cost [--threads 2] [--longest 131072] [--full-longest 32768] [--rounds 2]
                                     [--plot docs/linear_cost.svg] [--write-docs docs/linear_cost.md]

Every measurement runs in a process of its own, and both sides of a comparison take turns. Prints tables as they are
completed, each with the bound from FLOPs or bytes beside it, and last one JSON object. What could not be measured,
for instance because it did not fit into memory, is missing from the tables and null there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from .linear_cost_bounds import Backbone, csa_flops, prefill_flops
from .linear_cost_measure import CSA, Facts, config, grid, measure
from .linear_cost_plot import draw
from .linear_cost_report import Results, document, summary, tables

SHORTEST, CSA_LONGEST = 1024, 16384
CACHE_TOKENS, EQUAL_TOKENS, DECODE_TOKENS = 4096 + 5, 4096, 16384
TRAIN_TOKENS = (512, 4096)
START, SPEED = 5.0, 1.5e10
"""Seconds of a process beside its work, and FLOPs a second: only to say how much time is left."""
FRESH = get_context("forkserver")  # each process is new, but the libraries are imported once for all
FRESH.set_forkserver_preload(["research.linear_cost_measure"])


@dataclass(frozen=True, slots=True)
class Job:
    """One process: what is measured, for whom and at how many tokens, and what it may take."""

    kind: str
    variant: str
    tokens: int
    flops: float = 0.0
    peak: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        """Where its facts are kept."""
        return self.kind, self.variant, self.tokens

    @property
    def weight(self) -> float:
        """About how many seconds it takes: a run for its time, perhaps one for its peak, a short one before."""
        return START + self.flops * (2 if self.peak else 1) / SPEED


def sizes(longest: int) -> list[int]:
    """Powers of two from 1024 up."""
    return [2**power for power in range(SHORTEST.bit_length() - 1, longest.bit_length())]


def jobs(longest: int, full_longest: int, rounds: int) -> list[Job]:
    """Everything, the two sides of a comparison next to each other, in each round again."""
    shape = Backbone.of(config())
    found: list[Job] = [Job("equal", "csa", EQUAL_TOKENS)]
    found += [Job("cache", variant, CACHE_TOKENS) for variant in ("w8s8", "csa")]
    for turn in range(rounds):
        peak = turn == 0
        for tokens in sizes(longest):
            if tokens <= full_longest:
                found.append(Job("prefill", "full", tokens, prefill_flops(shape, tokens), peak))
            found.append(Job("prefill", "w8s8", tokens, prefill_flops(shape, tokens, grid()), peak))
        for tokens in sizes(min(longest, CSA_LONGEST)):
            for variant, dense in (("transformers", True), ("ours", False)):
                found.append(Job("csa", variant, tokens, csa_flops(CSA, tokens, dense), peak))
        for tokens in TRAIN_TOKENS:
            found += [Job("train", variant, tokens) for variant in ("full", "w8s8")]
        decoded = min(longest, DECODE_TOKENS)
        found += [
            Job("decode", variant, decoded, prefill_flops(shape, decoded)) for variant in ("full", "w8s8")
        ]
    return found


def run(job: Job, threads: int) -> Facts | None:
    """The facts that a process finds; None where it fails or is killed, of which stderr then speaks."""
    receiver, sender = FRESH.Pipe(duplex=False)
    process = FRESH.Process(target=_measure, args=(sender, job, threads))
    process.start()
    sender.close()
    try:
        facts: Facts | None = receiver.recv()
    except EOFError:
        facts = None
    process.join()
    if facts is None:
        note = f"{job.kind} {job.variant} at {job.tokens} tokens was not measured: exit status {process.exitcode}"
        print(note, file=sys.stderr, flush=True)
    return facts


def _measure(sender: Connection, job: Job, threads: int) -> None:
    torch.set_num_threads(threads)
    sender.send(measure(job.kind, job.variant, job.tokens, job.peak))


def collect(plan: list[Job], threads: int) -> Results:
    """Run one job after another; the best of all rounds counts."""
    results: Results = {}
    started, all_weights, done = time.monotonic(), sum(job.weight for job in plan), 0.0
    printed: set[str] = set()
    for number, job in enumerate(plan, start=1):
        facts = run(job, threads)
        if facts is not None:
            merge(results.setdefault(job.key, {}), facts)
        done += job.weight
        elapsed = time.monotonic() - started
        left = elapsed * (all_weights / done - 1)
        note = f"{number}/{len(plan)} {job.kind} {job.variant} {job.tokens}: {elapsed:.0f} s, about {left:.0f} s left"
        print(note, file=sys.stderr, flush=True)
        if job.kind not in printed and all(later.kind != job.kind for later in plan[number:]):
            printed.add(job.kind)
            print("\n".join(chain(*tables(results, job.kind))), flush=True)
    return results


def merge(best: Facts, facts: Facts) -> None:
    """Keep the shortest time and the highest speed; everything else does not change."""
    for name, value in facts.items():
        keep = {"seconds": min, "tokens_per_second": max}.get(name)
        best[name] = keep(best[name], value) if keep and name in best else value


def machine(threads: int) -> str:
    """Processor, threads and versions, in words."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return f"{names[0] if names else 'unknown processor'}, {threads} threads, torch {torch.__version__}, fp32"


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--longest", type=int, default=2**17, help="tokens of the longest prefill")
    parser.add_argument("--full-longest", type=int, default=2**15, help="the same for full attention")
    parser.add_argument(
        "--rounds", type=int, default=2, help="each time is measured so often; the best counts"
    )
    parser.add_argument("--plot", type=Path, help="SVG to write")
    parser.add_argument("--write-docs", type=Path, help="page to write the tables to")
    parser.add_argument("--measure", help="one measurement only, printed as JSON")
    parser.add_argument("--variant", default="w8s8", help="of what is measured")
    parser.add_argument("--tokens", type=int, default=SHORTEST)
    parser.add_argument("--peak", action="store_true", help="the peak of memory too")
    return parser.parse_args()


def main() -> None:
    """Measure everything, print the tables and the JSON; or one measurement."""
    given = arguments()
    if given.measure:
        torch.set_num_threads(given.threads)
        print(json.dumps(measure(given.measure, given.variant, given.tokens, given.peak)))
        return
    results = collect(jobs(given.longest, given.full_longest, given.rounds), given.threads)
    if given.plot:
        given.plot.write_text(draw(results))
    if given.write_docs:
        plot = None
        if given.plot:
            plot = os.path.relpath(given.plot, given.write_docs.parent)
        command = " ".join(["python -m research.linear_cost", *sys.argv[1:]])
        given.write_docs.write_text(document(results, command, machine(given.threads), plot))
    print(json.dumps(summary(results)))


if __name__ == "__main__":
    main()
