"""One symptom, two causes: a needle's last token goes wrong at some residues mod 4, pads behind it are harmless.

Twin A is a model that pools windows of 4 tokens, on a sound engine. Twin B is a dense model on an engine whose
prefill loses one lane of its tiles of 4. Measured alone they look alike; `check` tells them apart.

    python -m examples.engine_or_model.twins --out runs/twins [--contexts 25]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.checking import Verdict, check
from phasescope.checking.local import LocalEngine
from phasescope.checkpoints import zoo
from phasescope.protocols import InSequencePadding, QueryPadding
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.statistics.effect import read_effect
from phasescope.testing.planted_faults import lose_lane

STRIDE = 4
LANE = 3  # a value that stands here is lost; its key, the source, then has phase 2
PAIRS = 16


def backends() -> dict[str, TransformersBackend]:
    """Both twins by name."""
    pooled = TransformersBackend.load(zoo.folder("w4s4-1kv"), name="twin A")
    dense = TransformersBackend.load(zoo.folder("full-1kv"), name="twin B", prove=False)  # with its fault
    lose_lane(dense.model, stride=STRIDE, residue=LANE)
    return {"twin A": pooled, "twin B": dense}


def measure(twins: dict[str, TransformersBackend], out: Path, contexts: int) -> None:
    """Move the needle, and move the end of the prompt behind it: two runs per twin, in one folder each."""
    paddings = {"needle": InSequencePadding, "end": QueryPadding}
    for moved, padding in paddings.items():
        protocol = padding(pairs=PAIRS, contexts=contexts)
        run([Condition(name, backend, protocol) for name, backend in twins.items()], out / moved, seed=0)


def shares(folder: Path, condition: str, position: str) -> list[float]:
    """Share of right answers by the residue of a position mod 4."""
    observations = read_run(folder).observations[condition]
    residues = np.array([getattr(observation, position) % STRIDE for observation in observations])
    scores = np.array([observation.score for observation in observations])
    return [float(scores[residues == residue].mean()) for residue in range(STRIDE)]


def judge(name: str, backend: TransformersBackend, out: Path, seed: int = 0) -> Verdict:
    """Check the engine, with what was measured beside it."""
    effect = read_effect(out / "needle", condition=name, seed=seed)
    engine = LocalEngine(backend.model, name=name)
    features = ["prefill", "parts", "steps", "prefix", "restore"]
    return check(
        engine, strides=[STRIDE], seed=seed, features=features, cases=12, sweep=24, longest=64, effect=effect
    )


def main(arguments: list[str] | None = None) -> dict[str, Verdict]:
    """Print what each twin shows, and who is at fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--contexts", type=int, default=25)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    twins = backends()
    measure(twins, options.out, options.contexts)
    verdicts = {}
    for name, backend in twins.items():
        print(f"{name}: share of right answers by residue mod {STRIDE}")
        for moved, position in (("needle", "source_position"), ("end", "query_position")):
            found = shares(options.out / moved, name, position)
            print(f"  the {moved} moves: {', '.join(f'{share:.2f}' for share in found)}")
        verdicts[name] = judge(name, backend, options.out)
        print(f"  {verdicts[name].sentence}\n")
    return verdicts


if __name__ == "__main__":
    main()
