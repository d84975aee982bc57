"""Two processes that build the same corpus leave one that is whole."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phasescope.text.corpus import Corpus
from tests.cli.base_install import serving

ROUNDS = 20


@pytest.mark.slow
def test_a_raced_build_leaves_one_valid_corpus(tmp_path: Path) -> None:
    """Twenty times: one process builds, the other is told in one line, and every byte is that of the digest."""
    lines = (json.dumps({"text": f"line {n} of {n * n} lines " * 20}) + "\n" for n in range(2000))
    (tmp_path / "text.jsonl").write_text("".join(lines))
    words = ("--text", "text.jsonl", "--vocabulary", 300, "--held-out", 0.2)
    with serving() as one, serving() as other, ThreadPoolExecutor(2) as both:
        for number in range(ROUNDS):
            command = ("corpus", f"made-{number}", *words)
            ends = list(both.map(lambda served, c=command: served.ended(*c, cwd=tmp_path), (one, other)))
            assert sorted(code for code, _, _ in ends) == [0, 2], ends
            (refused,) = (error for code, _, error in ends if code == 2)
            assert len(refused.strip().splitlines()) == 1
            Corpus.open(tmp_path / f"made-{number}").verify()
    assert len({(tmp_path / f"made-{n}" / "train.bin").read_bytes() for n in range(ROUNDS)}) == 1
