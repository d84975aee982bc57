"""Whether a model answers alike however it is read: many questions after one prefill, or each prompt fresh and alone.

A model may take its cache for empty, or mix up the rows of a batch; its answers are then wrong without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...errors import UsageError, first_line
from ...records import Reply, Trial
from .forward import BREAKS

PREFIXES = {40: 3, 300: 2}
"""Of the probe: tokens of each prefix, and how many questions follow it. The long one is beyond usual strides and the
windows of small models."""
REST, ANSWER = 5, 2
"""Of the probe: tokens of each question and of its answer."""
ROUNDING = {torch.float64: 1e-8, torch.float32: 2e-5, torch.float16: 0.05, torch.bfloat16: 0.3}
"""Nats per token by which answers may differ from rounding alone, in models that pass."""
AT_SIZE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}
"""The same in a prompt as long as the run's, where more is added up."""
Answer = Callable[[Sequence[Trial]], Sequence[Reply]]


@dataclass(frozen=True)
class Proof:
    """What came of the probe.

    Attributes:
        difference: largest difference of a log-probability between shared and fresh reading, in nats; None if the
            shared way cannot be computed at all.
        fault: what is wrong with the shared way, in words; None if nothing is.
    """

    difference: float | None
    fault: str | None


def probe(model: Any) -> list[Trial]:
    """Questions about random contexts, the same for every model with as many tokens in its vocabulary."""
    config = model.config.get_text_config()
    size = getattr(config, "vocab_size", None) or model.get_input_embeddings().weight.shape[0]
    most = getattr(config, "max_position_embeddings", None) or max(PREFIXES) + REST + ANSWER
    rng = np.random.default_rng(40)
    trials = []
    for tokens, questions in PREFIXES.items():
        prefix = rng.integers(0, size, max(1, min(tokens, most - REST - ANSWER))).tolist()
        for n in range(questions):
            ids = rng.integers(0, size, REST + ANSWER).tolist()
            named = f"probe/{tokens}/{n}", f"probe/{tokens}"
            prompt, answer = (*prefix, *ids[:REST]), tuple(ids[REST:])
            trials.append(Trial(prompt, answer, (), 0, *named, 0, generate=1))
    return trials


def prove(model: Any, name: str, shared: Answer, fresh: Answer) -> Proof:
    """Compare both ways of reading on the probe.

    Args:
        model: the causal language model.
        name: what messages call it.
        shared: answers many questions from one prefill.
        fresh: answers each from forwards over the whole prompt, alone and without a cache.

    Raises:
        UsageError: if the fresh way cannot be computed, two equal forwards of it differ, or a token changes what was
            predicted before it.
    """
    trials = probe(model)
    allowed = ROUNDING.get(model.dtype, ROUNDING[torch.bfloat16])
    try:
        truth, again = _logprobs(fresh(trials)), _logprobs(fresh(trials[:1]))
        (short,) = fresh([replace(trials[0], answer_ids=trials[0].answer_ids[:1])])
    except BREAKS as error:
        raise UsageError(
            f"{name} cannot be read: {first_line(error)}; a causal language model is needed"
        ) from None
    noise = float(np.abs(truth[:1] - again).max())
    if noise > allowed:
        raise UsageError(
            f"{name} answers the same prompt differently each time (up to {noise:.2g} nats apart): its forward draws "
            "something at random; nothing measured on it would mean anything"
        )
    future = abs((short.greedy_logprob or 0.0) - truth[0, 1])
    if future > allowed:
        raise UsageError(
            f"{name} reads tokens that come after the one it predicts (its prediction moves by {future:.2g} nats with "
            "the next token): as configured it is no causal language model; some are with is_decoder set to true"
        )
    try:
        difference = float(np.abs(_logprobs(shared(trials)) - truth).max())
    except BREAKS as error:
        return Proof(None, f"it cannot go on from a cache ({first_line(error)})")
    if difference <= allowed:
        return Proof(difference, None)
    away = f"log-probabilities up to {difference:.2g} nats away from those of fresh forwards"
    return Proof(difference, f"many questions after one prefill get {away}")


def check_at_size(model: Any, name: str, trial: Trial, reply: Reply, fresh: Answer) -> None:
    """Hold one reply of a run's own, read in the shared way, against a fresh forward.

    A window or a stride that is longer than the probe shows only here.

    Raises:
        UsageError: if they differ by more than rounding.
    """
    allowed = AT_SIZE.get(model.dtype, AT_SIZE[torch.bfloat16]) * max(len(trial.answer_ids), 1)
    [alone] = _logprobs(fresh([trial]))
    [shared] = _logprobs([reply])
    difference = float(np.abs(alone - shared).max())
    if not difference <= allowed:
        raise UsageError(
            f"{name} answers a prompt of {len(trial.prompt_ids):,} tokens {difference:.2g} nats away from a fresh "
            "forward when its context is read once for many questions, and shorter ones rightly: its cache is wrong "
            "beyond some length; ask shorter prompts, or see with `phasescope check` which way of reading is at fault"
        )


def _logprobs(replies: Sequence[Reply]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Per question, log-probability of the answer and of the first token of the continuation."""
    return np.array([[reply.answer_logprob or 0.0, reply.greedy_logprob or 0.0] for reply in replies])
