"""Is a 20-point drop at one residue of 4 found behind an HTTP endpoint, from at most 1,500 probes?

    python -m benchmarks.planted_endpoint

The endpoint is a server of our own whose accuracy is 80 %, but 60 % where the source's position is 3 mod 4,
with block, context and layout noise. Two seeds, one with the drop and one flat, are measured over HTTP and
must give the observations that the planted model gives directly, one by one. With that shown, the other
seeds are measured directly, which gives the same numbers without the traffic.

What counts as found is what a user of a server has who doesn't know its grid: the global p of the period
search over all strides below 0.01, and 4 as the period. It is told for accuracy alone (servers without
log-probabilities) and for the log-probability.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phasescope import Finding, Observation, WindowGrid
from phasescope.backends import Planted
from phasescope.backends.openai.backend import OpenAIBackend
from phasescope.backends.openai.client import Limits
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.statistics import analyse
from phasescope.testing.fake_server import FakeServer, Offers
from phasescope.testing.fake_server.model import PlantedModel

DROP = (0.8, 0.8, 0.8, 0.6)
FLAT = (0.75,) * 4
NOISE = {"block_sd": 0.7, "layout_sd": 0.3}
PROTOCOL = PrefixPadding(pairs=12, contexts=12, residues=24, questions=5)
LEVEL = 0.01
OFFERS = Offers(logprobs="records", top=0, caches="cache_prompt")


def planted(curve: Sequence[float], seed: int) -> Planted:
    """The model behind the endpoint."""
    return Planted(grid=WindowGrid(4, 4), curve=curve, seed=seed, **NOISE)


def directly(curve: Sequence[float], seed: int) -> list[Observation]:
    """What the model answers when it is asked without a server."""
    with tempfile.TemporaryDirectory() as folder:
        run([Condition("endpoint", planted(curve, seed), PROTOCOL)], Path(folder), seed)
        return read_run(Path(folder)).observations["endpoint"]


class Named(PlantedModel):
    """The planted model, with the protocol's names of blocks, contexts and layouts as the source of noise.

    A server cannot know them, and its own names for the same things would draw other noise.
    """

    def __init__(self, model: Planted, seed: int) -> None:
        super().__init__(model)
        rng = np.random.default_rng([seed, *PROTOCOL.name.encode()])
        batches = PROTOCOL.batches(model.vocabulary(), rng)
        self.trials = {trial.prompt_ids: trial for batch in batches for trial in batch}

    def next_token(self, prompt_ids: Sequence[int]) -> dict[int, float]:
        """As the planted backend answers the trial with this prompt."""
        trial = self.trials.get(tuple(prompt_ids))
        return self.answer(trial) if trial else super().next_token(prompt_ids)


def over_http(curve: Sequence[float], seed: int) -> list[Observation]:
    """The same measured through the endpoint."""
    model = planted(curve, seed)
    with FakeServer(Named(model, seed), OFFERS) as server, tempfile.TemporaryDirectory() as folder:
        backend = OpenAIBackend(server.url, limits=Limits.checked(concurrency=8), vocabulary=model.ids)
        run([Condition("endpoint", backend, PROTOCOL)], Path(folder), seed)
        return read_run(Path(folder)).observations["endpoint"]


def same(one: Sequence[Observation], other: Sequence[Observation]) -> bool:
    """Whether two measurements agree in everything but the score among candidates, which needs all of them."""
    bare = [[o.model_copy(update={"candidate_score": None}) for o in side] for side in (one, other)]
    return bare[0] == bare[1]


def periods(observations: Sequence[Observation], seed: int) -> dict[str, Finding]:
    """The period search's findings by outcome."""
    found = analyse(observations, stride=None, fold=24, rng=np.random.default_rng(seed))
    return {finding.outcome: finding for finding in found if finding.name == "period"}


def main() -> None:
    """Measure, and print one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dropped", type=int, default=20, help="seeds with the drop")
    parser.add_argument("--flat", type=int, default=200, help="seeds without")
    asked = parser.parse_args()
    started = time.perf_counter()
    agree = all(same(over_http(curve, 0), directly(curve, 0)) for curve in (DROP, FLAT))
    print(f"over HTTP as directly: {agree}, {time.perf_counter() - started:.0f} s", flush=True)
    told: dict[str, int] = {}
    for name, curve, seeds in (("found", DROP, asked.dropped), ("false", FLAT, asked.flat)):
        for seed in range(seeds):
            for outcome, period in periods(directly(curve, seed), seed).items():
                low = period.p_value is not None and period.p_value < LEVEL
                hit = low and (name == "false" or period.value == 4)
                key = f"{name}_by_{outcome}"
                told[key] = told.get(key, 0) + hit
        print(name, told, f"{time.perf_counter() - started:.0f} s", flush=True)
    line = {
        "probes": PROTOCOL.plan().trials,
        "seeds": asked.dropped,
        "flat_seeds": asked.flat,
        **told,
        "http_agrees": agree,
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
