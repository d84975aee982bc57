"""Several questions about one long context in bounded memory, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_long_shared_prefill_takes_little_more_than_weights_and_cache() -> None:
    """Six questions about 8,192 tokens peak below twice weights and cache; a copy of the cache would exceed it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_out", "--memory", "--length", "8192", "--chunk", "64"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["peak_memory_ratio"] < 2.0
