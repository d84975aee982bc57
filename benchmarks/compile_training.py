"""Does torch.compile make training faster? Forward and backward of mixed steps, as they are and compiled.

    python -m benchmarks.compile_training --steps 40

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phasescope.models import Compression
from phasescope.text.corpus import Corpus, build
from phasescope.training import Progress, RetrievalTask, Text, Training
from phasescope.training.mixture import loss_of, parts_of
from phasescope.training.trainer import new_model

from .made_tokenizer import made_words


def main() -> None:
    """Time both, on batches as training draws them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = _corpus(Path(folder) / "corpus")
        settings = _settings(corpus)
        plain = _timed(settings, corpus, steps, compiled=False)
        compiled = _timed(settings, corpus, steps, compiled=True)
    facts = {"steps": steps, "plain": plain, "compiled": compiled, "torch": torch.__version__}
    print(json.dumps(facts))


def _corpus(folder: Path) -> Corpus:
    rng, words = np.random.default_rng(0), made_words(400)
    return build((" ".join(rng.choice(words, size=60)) for _ in range(500)), 1024, folder)


def _settings(corpus: Corpus) -> Training:
    first = corpus.facts.vocabulary
    vocabulary = RetrievalTask().vocabulary.contiguous(32, 112, 112, first)
    return Training(
        compression=Compression(compressor="scalar_gate", width=8, stride=8),
        task=RetrievalTask(vocabulary=vocabulary),
        text=Text(corpus=corpus.facts.digest, vocabulary=first),
        kv_heads=1,
    )


def _timed(settings: Training, corpus: Corpus, steps: int, *, compiled: bool) -> dict[str, float]:
    """Seconds of the first step, of the second half, per step, and of all."""
    model: Any = new_model(settings).train()
    called = torch.compile(model) if compiled else model
    ends = [time.perf_counter()]
    for step in range(steps):
        for part in parts_of(settings, Progress(pairs=16, step=step), corpus, 0, 1):
            loss_of(called, part, torch.device("cpu"))[0].backward()
        model.zero_grad()
        ends.append(time.perf_counter())
    half = steps // 2
    return {
        "first_step": round(ends[1] - ends[0], 2),
        "later_steps": round((ends[-1] - ends[half]) / (steps - half), 3),
        "all": round(ends[-1] - ends[0], 1),
    }


if __name__ == "__main__":
    main()
