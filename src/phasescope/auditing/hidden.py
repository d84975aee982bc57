"""What a benchmark could hide, and what it could see, given how often it visits each phase."""

from __future__ import annotations

import numpy as np
from scipy import optimize, stats

from ..statistics.intervals import SIGNIFICANT
from .coverage import Floats, Ints

POWER = 0.8


def hidden_loss(share_S: Floats, bar: float) -> Floats:
    """The largest accuracy loss at each phase alone with which a model still passes on average.

        loss_s = min(1, (1 − bar) / share_s)        1 where share_s = 0

    A model that is right everywhere else and loses d at phase s scores 1 − share_s·d; it passes while that
    is at least the bar. It is an upper limit: a model that also errs elsewhere has less to hide.

    Args:
        share_S: share of the samples at each phase.
        bar: mean accuracy from which the benchmark counts as passed.
    """
    allowed = 1 - bar
    loss_S = np.ones_like(share_S)
    np.divide(allowed, share_S, out=loss_S, where=share_S > allowed)
    return loss_S


def blind_phases(share_S: Floats, bar: float) -> int:
    """At how many phases a model could be wholly blind, right at all others, and pass on average.

    the largest K with  Σ of the K smallest shares ≤ 1 − bar
    """
    # Shares are counts over a total: a sum that is equal on paper must not fail by rounding.
    return int((np.cumsum(np.sort(share_S)) <= 1 - bar + 1e-12).sum())


def detectable_loss(count_S: Ints, accuracy: float) -> list[float | None]:
    """The smallest loss at each phase alone that a test of that phase against all others would find.

        d with  d = z_(α/2S) √( p̄(1−p̄) (1/n_s + 1/m_s) ) + z_β √( p(1−p)/m_s + (p−d)(1−p+d)/n_s )

    n_s samples at the phase, m_s at the others with accuracy p, p̄ their mean: the two-sided test of two
    proportions with pooled variance, power 80 %, at 5 % divided by the S phases, as nobody knows beforehand
    which phase is weak (Bonferroni). Samples count as independent.

    Args:
        count_S: samples at each phase.
        accuracy: at the other phases, 0 to 1.

    Returns:
        one loss per phase, a difference of accuracies; None where even total blindness would go unseen.

    Source: Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, section 4.3, without
        its continuity correction.
    """
    level, total = stats.norm.isf(SIGNIFICANT / 2 / len(count_S)), int(count_S.sum())
    solved = {n: _solve(n, total - n, accuracy, level) for n in map(int, np.unique(count_S))}
    return [solved[int(n)] for n in count_S]


def _solve(here: int, elsewhere: int, accuracy: float, level: float) -> float | None:
    """The loss at which the power is 80 %."""
    if here == 0 or elsewhere == 0 or accuracy <= 0:
        return None
    beta = stats.norm.isf(1 - POWER)

    def excess(loss: float) -> float:
        weak = accuracy - loss
        pooled = (here * weak + elsewhere * accuracy) / (here + elsewhere)
        null = np.sqrt(pooled * (1 - pooled) * (1 / here + 1 / elsewhere))
        alternative = np.sqrt(accuracy * (1 - accuracy) / elsewhere + weak * (1 - weak) / here)
        return float(loss - level * null - beta * alternative)

    if excess(accuracy) < 0:
        return None
    # Just above 0 the noise is larger than the loss, whatever the accuracy.
    return float(optimize.brentq(excess, 1e-12, accuracy))
