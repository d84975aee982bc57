"""Muon against the library's own, and what orthogonalising means."""

import pytest
import torch

from phasescope.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_orthogonal_moves_all_singular_values_near_one(shape):
    """Matrices of any aspect, stacked, keep their singular vectors and lose their scale."""
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonal(x))
    assert values.min() > 0.3
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    rotated = u.mT @ orthogonal(x) @ v.mT
    assert (rotated - torch.diag_embed(torch.diagonal(rotated, dim1=-2, dim2=-1))).abs().max() < 1e-9


def test_a_few_steps_agree_with_the_library_up_to_bfloat16():
    """Same momentum, same scale: only the precision of Newton-Schulz differs."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(12, 8, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine = Muon([ours], lr=0.1, momentum=0.9)
    library = torch.optim.Muon([theirs], lr=0.1, momentum=0.9, weight_decay=0.0, adjust_lr_fn="original")
    for _ in range(3):
        gradient = torch.randn(12, 8, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        library.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved
