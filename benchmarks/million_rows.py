"""What does `phasescope report` take on a million observations? CPU seconds and peak memory, in a process of its own.

The run has two conditions, a planted curve over eight phases and a flat control, with block, context and layout noise,
of 500 contexts x 42 questions x 24 layouts each: 1,008,000 observations with log-probabilities.

    python -m benchmarks.million_rows [--contexts 500] [--run FOLDER]

With --run the folder is kept, and used again if the run is there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from phasescope import WindowGrid
from phasescope.backends import Planted
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run

CURVE = (0.8, 0.8, 0.75, 0.7, 0.7, 0.75, 0.6, 0.5)
NOISE = {"block_sd": 0.7, "cluster_sd": 0.4, "layout_sd": 0.3}
QUESTIONS, LAYOUTS = 42, 24


def write_run(folder: Path, contexts: int) -> None:
    """Ask the planted models; a run that is there already stays as it is."""
    protocol = PrefixPadding(pairs=QUESTIONS, questions=QUESTIONS, contexts=contexts, residues=LAYOUTS)
    conditions = [
        Condition("curve", Planted(grid=WindowGrid(8, 8), curve=CURVE, seed=1, **NOISE), protocol),
        Condition("flat", Planted(grid=WindowGrid(8, 8), curve=(0.7,) * 8, seed=2, **NOISE), protocol),
    ]
    run(conditions, folder, seed=0, report=_told)


def _told(done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,} trials", end="", file=sys.stderr, flush=True)


def measured(folder: Path) -> dict[str, float]:
    """CPU seconds and peak of the report on that folder, on one thread."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "phasescope", "report", str(folder)]
    process = subprocess.Popen(command, env=os.environ | single)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return {
        "seconds_cpu": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss / 1024),
    }


def main() -> None:
    """Write the run, report it, and print what that took as one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=int, default=500, help="contexts of each condition")
    parser.add_argument("--run", type=Path, help="keep the run here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.run or Path(temporary) / "run"
        # In a process of its own: what this one has held would count as the report's peak.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_run, args=(folder, arguments.contexts)
        )
        writer.start()
        writer.join()
        found = measured(folder)
    print(json.dumps({**found, "rows": 2 * arguments.contexts * QUESTIONS * LAYOUTS}))


if __name__ == "__main__":
    main()
