"""What one prefill per context saves against one prompt per question, with the same answers.

Asks 64 pairs in 24 layouts both ways on one thread, the reference at the batch size that suits it best.

    python -m benchmarks.shared_prefill [--model FOLDER_OR_ZOO_NAME] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from phasescope import Reply, Trial
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.checkpoints import zoo
from phasescope.protocols import Batch, PrefixPadding

BATCH_TOKENS = (
    2**11,
    2**12,
    2**13,
    2**14,
    2**15,
    2**16,
)  # rows × length of a reference forward: 10 to 320 rows
TOLERANCE = 1e-4  # of a log-probability


def load(model: str | None) -> TransformersBackend:
    """A folder, a zoo name, or by default the zoo's W8/S8 with the fewest KV heads."""
    if model is not None:
        return TransformersBackend.load(zoo.folder(model) if model in zoo.names() else Path(model))
    cards = {name: zoo.card(name) for name in zoo.names()}
    reference = [
        name
        for name, card in cards.items()
        if card.compression and (card.compression.width, card.compression.stride) == (8, 8)
    ]
    return load(min(reference, key=lambda name: cards[name].kv_heads or 0))


def ask(backend: TransformersBackend, trials: Batch) -> tuple[list[Reply], float, float]:
    """Replies, seconds per probe and prompt tokens read per probe."""
    tokens, started = backend.tokens, time.perf_counter()
    replies = backend.answer(trials)
    seconds = time.perf_counter() - started
    return replies, seconds / len(trials), (backend.tokens - tokens) / len(trials)


def best_reference(backend: TransformersBackend, trials: Batch) -> TransformersBackend:
    """One prompt per probe, at the batch size that is fastest on a few layouts."""
    vocabulary, name = backend.vocabulary(), backend.name
    tried = [
        TransformersBackend(backend.model, vocabulary, name=name, max_tokens=tokens, share_prefix=False)
        for tokens in BATCH_TOKENS
    ]
    few = trials[: 64 * 5]
    return min(tried, key=lambda candidate: min(ask(candidate, few)[1] for _ in range(2)))


def same(shared: list[Reply], single: list[Reply]) -> bool:
    """The same tokens, and log-probabilities within the tolerance."""
    gaps = [
        abs((a.answer_logprob or 0) - (b.answer_logprob or 0)) for a, b in zip(shared, single, strict=True)
    ]
    return max(gaps) <= TOLERANCE and [a.ids for a in shared] == [b.ids for b in single]


def main() -> None:
    """Print what was measured, and last one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="checkpoint folder or zoo name")
    parser.add_argument(
        "--rounds", type=int, default=3, help="each way is measured so often; the fastest counts"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    backend = load(arguments.model)
    trials: tuple[Trial, ...] = next(
        PrefixPadding(contexts=1).batches(backend.vocabulary(), np.random.default_rng(0))
    )
    reference = best_reference(backend, trials)
    # Rounds alternate, so that whatever else the machine does falls on both.
    rounds = [(ask(backend, trials), ask(reference, trials)) for _ in range(arguments.rounds)]
    (shared, _, shared_tokens), (single, _, single_tokens) = rounds[0]
    shared_seconds, single_seconds = (min(each[way][1] for each in rounds) for way in (0, 1))
    rows = reference.max_tokens // len(trials[0].prompt_ids)
    print(f"{backend.name}: {len(trials)} probes, {len(trials[0].prompt_ids)} tokens each")
    print(f"shared prefill:       {shared_tokens:7.1f} tokens, {shared_seconds * 1e3:.3f} ms per probe")
    print(
        f"one prompt per probe: {single_tokens:7.1f} tokens, {single_seconds * 1e3:.3f} ms in rows of {rows}"
    )
    facts = {
        "tokens_ratio": round(single_tokens / shared_tokens, 2),
        "time_ratio": round(single_seconds / shared_seconds, 2),
        "same_answers": same(shared, single),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
