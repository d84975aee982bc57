"""RULER's niah_single_1, written anew from its published description: one needle among repeated filler lines.

Described in arXiv 2404.06654, section 3.1 and appendix: the haystack is a line of five short sentences, the needle
"One of the special magic numbers for KEY is: VALUE." with an adjective-noun key and a number of seven digits, at a
place drawn uniformly among the lines; lines are added 25 at a time as long as the prompt fits into its length. The
keys here are made of our own words, not of the word list that RULER installs, so the counts by phase differ from those
of its files; the filler and with it the aliasing is the same.

    phasescope audit examples/audits/ruler.py:niah_single_1 --tokenizer FOLDER --stride 8
    phasescope audit examples/audits/ruler.py:niah_single_1 --tokenizer FOLDER --stride 8 --find "One of the special"
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from phasescope.text.tokens import Tokenizer

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
LENGTH, ANSWER, STEP = 4096, 128, 25  # tokens of prompt and answer, tokens of the answer, lines per step
ADJECTIVES, NOUNS = (
    part.split() for part in Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split("\n\n")
)


def prompt(lines: int, place: int, key: str, value: str) -> str:
    """Lines of filler with the needle in front of line `place`, and the question."""
    listed = [FILLER] * lines
    listed.insert(place, f"One of the special magic numbers for {key} is: {value}.")
    context = "\n".join(listed)
    return (
        "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you "
        f"about the number afterwards.\n{context}\nWhat is the special magic number for {key} mentioned in the "
        f"provided text? The special magic number for {key} mentioned in the provided text is"
    )


def niah_single_1(
    tokenizer: Tokenizer, rng: np.random.Generator, samples: int = 500
) -> Iterator[dict[str, object]]:
    """500 samples in the columns of RULER's files."""

    def fits(lines: int) -> bool:
        longest = prompt(lines, 0, "incandescent-ventriloquist", "1234567")
        return len(tokenizer.encode(longest)) + ANSWER <= LENGTH

    lines = STEP
    while fits(lines + STEP):
        lines += STEP
    for index in range(samples):
        key = f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"
        value = str(rng.integers(10**6, 10**7))
        text = prompt(lines, int(rng.integers(lines)), key, value)
        yield {"index": index, "prompt": text, "needle": value}
