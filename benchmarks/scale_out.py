"""What workers bring, what chunks change, and how much memory a long shared prefill takes.

Throughput of one and of two worker processes on a zoo model, with the bytes that they write compared; the
largest difference that chunked prefill makes to a log-probability, in float32; and the peak memory of
asking several questions about one long context, against weights and cache, in a process of its own.

    python -m benchmarks.scale_out [--length 16384] [--chunk 256] [--contexts 24]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from phasescope import Trial
from phasescope.backends import BackendSpec
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.checkpoints import zoo
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.protocols import PrefixPadding
from phasescope.running.processes import Processes
from phasescope.running.runner import Condition, run
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(64, 200, 200)
SHAPE = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "max_position_embeddings": 2**17,
    "initializer_range": 0.1,
}
QUESTIONS = 6
disable_progress_bar()  # here, because workers import this file too


def throughput(workers: int, contexts: int, out: Path) -> float:
    """Probes per second from the second answered batch on, when every worker has loaded its model."""
    name = zoo.names()[-1]
    spec = BackendSpec("transformers", {"path": str(zoo.folder(name)), "name": name, "threads": 1})
    seen: list[tuple[float, int]] = []
    engine = Processes(workers)
    condition = Condition(name, spec, PrefixPadding(pairs=16, contexts=contexts))
    run([condition], out, 0, lambda done, total: seen.append((time.perf_counter(), done)), engine)
    (first, before), (last, after) = seen[1 + workers], seen[-1]
    return (after - before) / (last - first)


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two run folders are equal but for their timings."""
    return all(
        (one / name).read_bytes() == (other / name).read_bytes()
        for name in ("run.json", "observations.jsonl")
    )


def chunk_difference() -> float:
    """Largest change of a log-probability by reading 2,000 tokens in chunks of 96, plain and compressed."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    folded = {"compressor": "scalar_gate", "width": 8, "stride": 4, "shift": (0, 2)}
    models: list[Any] = [
        Qwen3ForCausalLM(Qwen3Config(**SHAPE, **heads)),
        CompressedQwen3ForCausalLM(CompressedQwen3Config(**SHAPE, **heads, compression=folded)),
    ]
    trials = long_trials(2000, QUESTIONS)
    most = 0.0
    for model in models:
        replies = [
            TransformersBackend(model, VOCABULARY, name="tiny", prefill_chunk=chunk).answer(trials)
            for chunk in (96, 2**20)
        ]
        gaps = [
            np.abs(np.subtract(a.candidate_logprobs, b.candidate_logprobs)).max()
            for a, b in zip(*replies, strict=True)
        ]
        most = max(most, *map(float, gaps))
    return most


def long_trials(length: int, questions: int) -> list[Trial]:
    """Questions about one context of that many tokens."""
    rng = np.random.default_rng(0)
    context = tuple(rng.choice(VOCABULARY.fillers, length - 1).tolist())
    values = VOCABULARY.values[:8]
    return [
        Trial((*context, key), values[:1], values, 0, f"b{key}", "c", 0)
        for key in VOCABULARY.keys[:questions]
    ]


def memory(length: int, chunk: int) -> dict[str, float]:
    """Peak memory beyond what was there before the model, against weights and cache, and seconds."""
    torch.set_num_threads(1)
    trials = long_trials(length, QUESTIONS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # As many KV heads as query heads, so that the cache is large beside what is computed.
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_attention_heads=8, num_key_value_heads=8))
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    cache = length * 2 * 2 * 8 * 32 * 4  # tokens × (key, value) × layers × heads × channels × bytes
    backend = TransformersBackend(model, VOCABULARY, name="tiny", max_tokens=length // 2, prefill_chunk=chunk)
    started = time.perf_counter()
    backend.answer(trials)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return {
        "peak_memory_ratio": round(peak / (weights + cache), 2),
        "cache_mib": round(cache / 2**20, 1),
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    """Print what was measured, and last one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=16384, help="tokens of the long context")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of it that one forward reads")
    parser.add_argument("--contexts", type=int, default=24, help="contexts of the throughput runs")
    parser.add_argument("--memory", action="store_true", help="measure the memory alone, in this process")
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(memory(arguments.length, arguments.chunk)))
        return
    command = ["--memory", "--length", str(arguments.length), "--chunk", str(arguments.chunk)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_out", *command], capture_output=True, text=True, check=True
    )
    held = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{QUESTIONS} questions about {arguments.length} tokens in {held['seconds']} s; "
        f"cache {held['cache_mib']} MiB"
    )
    torch.set_num_threads(1)
    difference = chunk_difference()
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        rates = [throughput(workers, arguments.contexts, out) for workers, out in ((1, one), (2, two))]
        equal = same_bytes(one, two)
    print(f"{rates[0]:.0f} probes/s with one worker, {rates[1]:.0f} with two")
    facts = {
        "probes_per_second_1": round(rates[0]),
        "probes_per_second_2": round(rates[1]),
        "speedup": round(rates[1] / rates[0], 2),
        "same_bytes": equal,
        "chunk_max_difference": float(f"{difference:.2g}"),
        "peak_memory_ratio": held["peak_memory_ratio"],
        "length": arguments.length,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
