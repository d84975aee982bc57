"""A corpus and settings that train in seconds."""

from pathlib import Path

import numpy as np
from benchmarks.made_tokenizer import made_words

from phasescope.models import Compression
from phasescope.text.corpus import Corpus, build
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Text

SHAPE = {"layers": 1, "hidden_size": 16, "heads": 2, "kv_heads": 2, "head_dim": 8, "feed_forward": 16}
FOURS = Compression(compressor="scalar_gate", width=4, stride=4)


def made_corpus(folder: Path) -> Corpus:
    """Some 6,000 tokens of made-up words on a learned vocabulary of 270, a third of them held out."""
    rng, words = np.random.default_rng(0), made_words(30)
    texts = [" ".join(rng.choice(words, size=rng.integers(5, 30))) for _ in range(80)]
    return build(texts, 270, folder, held_out=0.3)


def made_task(first: int = 0) -> RetrievalTask:
    """Sixteen keys and values, on ids from `first` on."""
    return RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(4, 16, 16, first), fillers=8)


def mixed(corpus: Corpus, **settings) -> dict:
    """Settings of a mixture of eight sequences of records and four windows of text."""
    facts = corpus.facts
    text = Text(corpus=facts.digest, vocabulary=facts.vocabulary, rows=4, tokens=24)
    return {
        "compression": FOURS,
        "task": made_task(facts.vocabulary),
        "text": text,
        **SHAPE,
        "rows": 8,
        "first_pairs": 2,
        "max_pairs": 4,
        "promote": 5.0,
        **settings,
    }
