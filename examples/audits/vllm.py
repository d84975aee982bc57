"""vLLM's needle test (`tests/evals/niah`), written anew from its description: filler sentences, a number, a question.

60 prompts: 4 context lengths times 5 depths times 3 trials, and the test passes from an accuracy of 90 %. The haystack
is one line of five sentences again and again; the needle "The special magic number is NUMBER." stands in front of the
line at its depth, so that it can only begin at multiples of the line's tokens.

    phasescope audit examples/audits/vllm.py:niah --tokenizer FOLDER --stride 4 --stride 8 --bar 0.9
"""

from collections.abc import Iterator

import numpy as np

from phasescope.text.tokens import Tokenizer

FILLER = "The grass is green. The sky is blue. The sun is yellow. "
FILLER += "Filler text for context padding. Here is some more text. "
QUESTION = "What is the special magic number mentioned in the text above?"
LENGTHS, DEPTHS, TRIALS = (4096, 8192, 16384, 32768), (0.0, 0.25, 0.5, 0.75, 1.0), 3
SPARE = 20  # tokens that the test leaves free


def niah(tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[dict[str, object]]:
    """The test's 60 prompts, each with its needle."""

    def tokens(text: str) -> int:
        return len(tokenizer.start_ids) + len(tokenizer.encode(text))

    for length in LENGTHS:
        for depth in DEPTHS:
            for _ in range(TRIALS):
                needle = f"The special magic number is {rng.integers(100_000, 1_000_000)}."
                room = length - tokens(QUESTION) - tokens(needle) - SPARE
                lines = max(1, room // tokens(FILLER))
                before = int(lines * depth)
                haystack = FILLER * before + needle + " " + FILLER * (lines - before)
                yield {"prompt": f"{haystack}\n\n{QUESTION}", "needle": needle}
