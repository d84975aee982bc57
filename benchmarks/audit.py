"""How long an audit takes: a million rows with positions, and ten thousand prompts of 4,000 tokens.

Each is made in a temporary folder and audited by the command line in a process of its own, whose time and largest
memory are what counts. The prompts are drawn from a tokenizer's whole words, so that no two are alike.

    python -m benchmarks.audit [--tokenizer FOLDER] [--rows 1000000] [--prompts 10000] [--tokens 4000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from phasescope.text.tokens import Tokenizer


def trained(folder: Path, rng: np.random.Generator) -> Path:
    """A byte-level tokenizer of 8,000 tokens, trained on made-up words, where no real one is named."""
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, size=int(rng.integers(2, 9)))) for _ in range(4000)]
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    corpus = (" ".join(rng.choice(words, size=2000)) for _ in range(50))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8000, show_progress=False, initial_alphabet=alphabet)
    fast.train_from_iterator(corpus, trainer)
    folder.mkdir(parents=True)
    fast.save(str(folder / "tokenizer.json"))
    return folder


@dataclass(frozen=True)
class Cost:
    """Of one process: seconds by the clock and of the processors, and largest memory of any so far in MB."""

    seconds: float
    cpu: float
    peak: float


def audit(*arguments: str) -> Cost:
    """What one audit costs; what it says goes to the terminal, and an error ends the benchmark."""
    before, used = time.perf_counter(), _processor()
    done = subprocess.run(
        [sys.executable, "-m", "phasescope", "audit", *arguments], capture_output=True, text=True, check=False
    )
    seconds, cpu = time.perf_counter() - before, _processor() - used
    if done.returncode:
        sys.exit(done.stderr)
    print(done.stdout.partition("\n\n")[0])
    return Cost(seconds, cpu, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rows(path: Path, count: int, rng: np.random.Generator) -> None:
    """JSON lines with a position and a score each, whose accuracy falls with depth."""
    position = rng.integers(0, 131_072, size=count)
    right = rng.random(count) < 0.95 - 0.2 * position / 131_072
    with path.open("w", encoding="utf-8") as file:
        for index, (p, r) in enumerate(zip(position.tolist(), right.tolist(), strict=True)):
            file.write(f'{{"id": {index}, "position": {p}, "score": {int(r)}}}\n')


def prompts(path: Path, count: int, tokens: int, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    """JSON lines with a prompt of random words and a needle in it."""
    words = np.array([word for _, word in zip(range(2000), (w for _, w in tokenizer.words()), strict=False)])
    with path.open("w", encoding="utf-8") as file:
        for index in range(count):
            needle = f"The code is {index:07d}."
            drawn = rng.choice(words, size=tokens).tolist()
            drawn.insert(int(rng.integers(tokens)), needle)
            file.write(json.dumps({"prompt": " ".join(drawn), "needle": needle}) + "\n")


def main() -> None:
    """Print what was measured, and last one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of a tokenizer; one is trained where none is named"
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4000, help="words per prompt, a token each")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows(folder / "rows.jsonl", arguments.rows, rng)
        of_rows = audit(str(folder / "rows.jsonl"), "--out", str(folder / "rows"))
        chosen = arguments.tokenizer or trained(folder / "tokenizer", rng)
        prompts(folder / "prompts.jsonl", arguments.prompts, arguments.tokens, Tokenizer.load(chosen), rng)
        size = (folder / "prompts.jsonl").stat().st_size / 2**20
        of_prompts = audit(
            str(folder / "prompts.jsonl"), "--tokenizer", str(chosen), "--out", str(folder / "prompts")
        )
    made = f"{arguments.rows:,} rows", f"{arguments.prompts:,} prompts ({size:.0f} MB)"
    for what, cost in zip(made, (of_rows, of_prompts), strict=True):
        print(
            f"{what}: {cost.seconds:.1f} s, {cost.cpu:.1f} s of {os.cpu_count()} processors, {cost.peak:.0f} MB"
        )
    facts = {
        "million_rows_seconds": round(of_rows.seconds, 1),
        "million_rows_peak_mb": round(of_rows.peak),
        "prompts_10k_seconds": round(of_prompts.seconds, 1),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
