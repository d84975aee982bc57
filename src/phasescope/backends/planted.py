"""A backend whose phase curve is known, because we put it there: the measure of every statistic."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import logit, ndtri, xlogy

from ..errors import UsageError
from ..grid import WindowGrid
from ..records import Reply, Trial
from ..text.synthetic import RetrievalVocabulary

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """What a planted curve amounts to once its random effects are averaged over.

    Attributes:
        accuracy: probability of a right answer, per phase.
        logprob: mean log-probability of the right answer, per phase.
    """

    accuracy: tuple[float, ...]
    logprob: tuple[float, ...]


@dataclass(kw_only=True)
class Planted:
    """Answers with a known accuracy per phase and known block, cluster and layout effects.

        p = σ(logit(curve[phase]) + block + cluster + layout + trend · position)

    An answer is right iff p exceeds a uniform draw u. Its log-probability is log σ(logit p − logit u): above
    one half exactly when the answer is right, and higher on average where p is. Every draw is a hash of
    the seed and a name, so that a reply doesn't depend on what else is asked, or when.

    Args:
        grid: the grid that gives positions their phase.
        curve: accuracy per phase, strictly between 0 and 1.
        block_sd: SD of a question's own difficulty, in logits.
        cluster_sd: SD of a context's difficulty, in logits.
        layout_sd: SD of the noise that all questions of one context share in one layout, in logits.
        trend: change per token of position, in logits; it has no period.
        coordinate: the position whose phase counts, `source` or `query`.
        seed: of every draw.
        ids: the vocabulary that it accepts.
        name: what a report calls it.

    Raises:
        UsageError: if the curve does not fit the grid or is no probability.
    """

    grid: WindowGrid
    curve: Sequence[float]
    block_sd: float = 0.0
    cluster_sd: float = 0.0
    layout_sd: float = 0.0
    trend: float = 0.0
    coordinate: Literal["source", "query"] = "source"
    seed: int = 0
    ids: RetrievalVocabulary = field(default_factory=lambda: RetrievalVocabulary.contiguous(32, 96, 96))
    name: str = "planted"
    tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.curve = tuple(self.curve)
        if len(self.curve) != self.grid.stride or not all(0 < p < 1 for p in self.curve):
            raise UsageError(
                f"planted curve {self.curve}: give {self.grid.stride} accuracies between 0 and 1"
            )

    def vocabulary(self) -> RetrievalVocabulary:
        """The ids it was given."""
        return self.ids

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """Draw every reply; a wrong one is another candidate."""
        self.tokens += sum(len(trial.prompt_ids) for trial in trials)
        digests = [trial.digest for trial in trials]
        margin_T = self._logits(trials) - logit(self._uniform("answer", digests))
        right_T, wrong_T = -np.logaddexp(0, -margin_T), -np.logaddexp(0, margin_T)
        facts = zip(trials, right_T.tolist(), wrong_T.tolist(), self._uniform("rival", digests), strict=True)
        return [self._reply(*fact) for fact in facts]

    def truth(self) -> Truth:
        """Accuracy and mean log-probability per phase, over the random effects and without the trend.

        With k = (1 − p)/p the mean of log σ(logit p − logit u) over u is −k ln k / (k − 1); the effects
        are averaged by Gauss–Hermite quadrature.
        """
        node_N, weight_N = np.polynomial.hermite_e.hermegauss(64)
        sd = np.sqrt(self.block_sd**2 + self.cluster_sd**2 + self.layout_sd**2)
        odds_PN = np.exp(-logit(np.asarray(self.curve))[:, None] - sd * node_N)
        near_one = np.abs(odds_PN - 1) < 1e-6
        safe_PN = np.where(near_one, 2.0, odds_PN)
        logprob_PN = np.where(near_one, -1.0, -xlogy(safe_PN, safe_PN) / (safe_PN - 1))
        share_N = weight_N / weight_N.sum()
        accuracy_P, logprob_P = (1 / (1 + odds_PN)) @ share_N, logprob_PN @ share_N
        return Truth(tuple(accuracy_P.tolist()), tuple(logprob_P.tolist()))

    def describe(self) -> dict[str, Any]:
        """Everything that was planted."""
        facts = ("curve", "block_sd", "cluster_sd", "layout_sd", "trend", "coordinate", "seed")
        planted = {fact: getattr(self, fact) for fact in facts}
        return {"backend": "planted", "model": self.name, "grids": [asdict(self.grid)], "planted": planted}

    def _logits(self, trials: Sequence[Trial]) -> Floats:
        """The log-odds of a right answer to each trial."""
        source = self.coordinate == "source"
        position_T = np.array([t.source_position if source else len(t.prompt_ids) - 1 for t in trials])
        logits_T: Floats = (
            logit(np.asarray(self.curve))[self.grid.phase(position_T)]
            + self.block_sd * ndtri(self._uniform("block", [trial.block for trial in trials]))
            + self.cluster_sd * ndtri(self._uniform("cluster", [trial.cluster for trial in trials]))
            + self.layout_sd
            * ndtri(self._uniform("layout", [(trial.cluster, trial.layout) for trial in trials]))
            + self.trend * position_T
        )
        return logits_T

    def _reply(self, trial: Trial, right: float, wrong: float, draw: float) -> Reply:
        """Share the probability between the right answer and one rival, drawn among the others."""
        answer = trial.answer_ids[0]
        rivals = [ids for ids in trial.candidate_ids or self.ids.values if ids != answer]
        rival = rivals[int(draw * len(rivals))]
        logprob = {answer: right, rival: wrong}
        return Reply(
            ids=trial.answer_ids if right > wrong else (rival, *trial.answer_ids[1:]),
            prompt_tokens=len(trial.prompt_ids),
            answer_logprob=right,
            candidate_logprobs=tuple(logprob.get(ids, -np.inf) for ids in trial.candidate_ids),
            greedy_logprob=max(right, wrong),
            margin=abs(right - wrong),
        )

    def _uniform(self, kind: str, names: Iterable[object]) -> Floats:
        """Numbers strictly between 0 and 1 that depend on nothing but the seed, the kind and the name."""
        texts = (repr((self.seed, kind, name)).encode() for name in names)
        digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
        return (np.frombuffer(digests, dtype="<u8") >> 11).astype(np.float64) * 2.0**-53 + 2.0**-54
