"""What training looks at on the way: held-out loss, the phase curve, and what the gates prefer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..grid import RESIDUES
from ..protocols import InSequencePadding
from ..records import Observation
from ..running.runner import observed
from ..statistics.fold import identified_fold, phase_effects, phase_rates
from ..statistics.phase_effect import phase_sd
from ..statistics.table import tabulate
from ..text.corpus import Corpus

if TYPE_CHECKING:
    from ..models import CompressedQwen3ForCausalLM
    from ..training import Progress, Training

WATCH_CONTEXTS = 24
WATCH_SEED = 1
HELD_OUT_WINDOWS = 64


def watcher(
    settings: Training, corpus: Corpus | None
) -> Callable[[CompressedQwen3ForCausalLM, Progress], dict[str, Any]]:
    """A look at a model in training, for `training.train`.

    Its facts: `held_out` (nats per token of held-out text), and at `max_pairs` records under in-sequence padding
    `mean_accuracy`, `phases` (accuracy per phase), `phase_sd` with `low` and `high` (from 24 contexts, the same at
    every look), and `gates`: the mean weight of each slot, by layer, KV head and slot, on those prompts.
    """
    from ..backends.transformers.backend import TransformersBackend
    from ..training import held_out_loss
    from ..training.gates import mean_weights, watched

    protocol = InSequencePadding(pairs=settings.max_pairs, contexts=WATCH_CONTEXTS)

    def look(model: CompressedQwen3ForCausalLM, progress: Progress) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        if settings.text is not None and corpus is not None:
            facts["held_out"] = held_out_loss(model, corpus, settings.text.tokens, HELD_OUT_WINDOWS)
        if settings.task is not None:
            backend = TransformersBackend(model, settings.task.asked, name="now")
            with watched(model) as tallies:
                seen = list(observed("now", backend, protocol, np.random.default_rng(WATCH_SEED)))
            facts |= _curve(seen, settings.compression.stride if settings.compression else RESIDUES)
            facts["gates"] = [
                mean_weights(tally).double().cpu().numpy().round(4).tolist() for tally in tallies if tally
            ]
        return facts

    return look


def _curve(seen: list[Observation], fold: int) -> dict[str, Any]:
    table = tabulate(seen)
    design = identified_fold(table, "source", fold)
    spread = phase_sd(phase_effects(table, "accuracy", design))
    _, rates = phase_rates(table, "accuracy", "source", fold)
    return {
        "mean_accuracy": float(np.mean([o.score for o in seen])),
        "phase_sd": spread.value,
        "low": spread.low,
        "high": spread.high,
        "phases": [round(float(rate), 4) for rate in rates.rate_R],
    }
