"""Padding chosen so that a source's position has the same mean and variance at every residue."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
PASSES = 40
ENOUGH = 0.05
"""Tokens of spread in mean and in SD below which nothing is gained."""


def balanced_turns(start_CQ: Ints, groups: int, rng: np.random.Generator) -> Ints:
    """How many whole turns of `groups` tokens each layout adds to its own, 0 or 1.

    In layout l of context c question q stands at start_cq + l + groups · turn_cl. Its residue does not
    depend on the turns, its depth does. From random turns, single ones are changed for as long as that
    brings the residue groups closer together in the mean and SD of position.

    Args:
        start_CQ: positions in layout 0 without a turn, [contexts, questions].
        groups: layouts, and the modulus of the residues.
        rng: of the turns to begin with.

    Returns:
        array of 0 and 1 of shape [contexts, layouts].
    """
    turn_CL = rng.integers(2, size=(len(start_CQ), groups))
    place_CLQ = start_CQ[:, None, :] + np.arange(groups)[:, None]
    residue_CLQ = place_CLQ % groups
    centred_CLQ = (place_CLQ - np.floor(place_CLQ.mean())).astype(np.float64)
    moment_2R = _moments(residue_CLQ, centred_CLQ + groups * turn_CL[:, :, None], groups)
    trials = start_CQ.size
    best = _imbalance(moment_2R / trials)
    for _ in range(PASSES):
        before = best
        for context, layout in rng.permutation(list(np.ndindex(turn_CL.shape))).tolist():
            if _spread(moment_2R / trials) < ENOUGH:
                return turn_CL
            here_Q, residue_Q = centred_CLQ[context, layout], residue_CLQ[context, layout]
            old = turn_CL[context, layout]
            change_2R = _moments(residue_Q, here_Q + groups * (1 - old), groups)
            change_2R -= _moments(residue_Q, here_Q + groups * old, groups)
            imbalance = _imbalance((moment_2R + change_2R) / trials)
            if imbalance < best:
                turn_CL[context, layout], best = 1 - old, imbalance
                moment_2R += change_2R
        if best >= before:
            break
    return turn_CL


def _moments(residue: Ints, position: Floats, groups: int) -> Floats:
    """Sums of positions, and of their squares, by residue: [2, residues]."""
    flat = residue.ravel()
    return np.stack([np.bincount(flat, position.ravel() ** power, groups) for power in (1, 2)])


def _mean_sd(moment_2R: Floats) -> Floats:
    mean_R, square_R = moment_2R
    return np.stack([mean_R, np.sqrt(np.maximum(square_R - mean_R**2, 0))])


def _imbalance(moment_2R: Floats) -> float:
    return float(_mean_sd(moment_2R).var(axis=1).sum())


def _spread(moment_2R: Floats) -> float:
    return float(np.ptp(_mean_sd(moment_2R), axis=1).max())
