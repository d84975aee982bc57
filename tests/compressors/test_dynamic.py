"""Dynamic windows: their bounds, their mean length, and that they follow the content and nothing else."""

import pytest
import torch

from phasescope import UsageError, WindowGrid
from phasescope.compressors.dynamic import NEVER, Dynamic, boundary_chance, dynamic_bounds
from phasescope.compressors.scalar_gate import ScalarGate
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.testing import LAWS, check_compressor

LENGTHS = [(1, 6, 12), (2, 6, 12), (4, 6, 8), (3, 8, 64), (1, 2, 4)]


def dynamic(
    minimum: int, mean: int, maximum: int, *, heads: int = 1, hidden: int = 64, seed: int = 0
) -> Dynamic:
    """One layer's compressor with 4 channels a head."""
    torch.manual_seed(3)
    grids = [WindowGrid(maximum, mean)] * heads
    return Dynamic(grids, hidden, 4, minimum=minimum, seed=seed)


def windows_one_by_one(ends: list[bool], minimum: int, maximum: int) -> list[tuple[int, int]]:
    """The definition: go on until a boundary or the maximum, and drop what is not complete."""
    found, start = [], 0
    for token, end in enumerate(ends):
        length = token - start + 1
        if (end and length >= minimum) or length == maximum:
            found.append((start, token))
            start = token + 1
    return found


def bounds_of(pool: Dynamic, hidden_BTE: torch.Tensor) -> torch.Tensor:
    """The last tokens of the complete windows of one row."""
    ends_BT = pool.state_BHTG(hidden_BTE)[:, 0, :, 1] > 0
    return dynamic_bounds(ends_BT, pool.minimum, pool.grids[0].width)[1][0]


@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 65, 300])
@pytest.mark.parametrize("chance", [0.0, 0.15, 0.6, 1.0])
@pytest.mark.parametrize(("minimum", "maximum"), [(1, 1), (1, 12), (5, 12), (6, 6), (70, 90)])
def test_doubled_jumps_find_the_windows_that_a_walk_finds(tokens, chance, minimum, maximum):
    """Starts, closes and cover of four rows equal those of the definition, walked token by token."""
    ends_BT = torch.rand(4, tokens, generator=torch.Generator().manual_seed(tokens)) < chance
    start_BN, last_token_BN, visible_from_BT = dynamic_bounds(ends_BT, minimum, maximum)
    walks = [windows_one_by_one(row, minimum, maximum) for row in ends_BT.tolist()]
    assert last_token_BN.shape[1] == max(map(len, walks))
    for row, walk in enumerate(walks):
        missing = last_token_BN.shape[1] - len(walk)
        assert last_token_BN[row].tolist() == [last for _, last in walk] + [NEVER] * missing
        assert start_BN[row, : len(walk)].tolist() == [first for first, _ in walk]
        covered = [last for first, last in walk for _ in range(first, last + 1)]
        assert visible_from_BT[row].tolist() == covered + [NEVER] * (tokens - len(covered))


def test_entries_follow_the_formula_and_rows_have_windows_of_their_own():
    """Softmax-weighted sums written out window by window in float64; missing entries are finite."""
    pool = dynamic(2, 5, 9, heads=2, hidden=16).double()
    torch.nn.init.normal_(pool.slot_bias)
    hidden = torch.randn(3, 50, 16, dtype=torch.float64)
    key, value = torch.randn(2, 3, 2, 50, 4, dtype=torch.float64)
    with torch.no_grad():
        state = pool.state_BHTG(hidden)
        entries = pool.entries(key, value, state)
        u = pool.gate.weight
        counts = []
        for row in range(3):
            walk = windows_one_by_one((state[row, 0, :, 1] > 0).tolist(), 2, 9)
            counts.append(len(walk))
            assert entries.position_BHN[row, 0, : len(walk)].tolist() == [first for first, _ in walk]
            for window, (first, last) in enumerate(walk):
                for head in range(2):
                    logits = (
                        hidden[row, first : last + 1] @ u[head] + pool.slot_bias[head, : last - first + 1, 0]
                    )
                    weight = logits.softmax(0)[:, None]
                    for mine, payload in ((entries.key_BHND, key), (entries.value_BHND, value)):
                        expected = (weight * payload[row, head, first : last + 1]).sum(0)
                        torch.testing.assert_close(mine[row, head, window], expected, rtol=1e-9, atol=1e-12)
    assert len(set(counts)) > 1
    assert bool(entries.key_BHND.isfinite().all())
    assert pool.entries(key, key, state).value_BHND.shape == key.shape[:2] + entries.key_BHND.shape[2:]


@pytest.mark.parametrize(("minimum", "mean", "maximum"), LENGTHS)
def test_the_chance_gives_the_stated_mean_length(minimum, mean, maximum):
    """The mean of the truncated geometric distribution, summed length by length, is the stride."""
    p = boundary_chance(minimum, mean, maximum)
    chances = [p * (1 - p) ** i for i in range(maximum - minimum)]
    chances.append(1 - sum(chances))
    assert sum(c * (minimum + i) for i, c in enumerate(chances)) == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1.0, -1.0])
@pytest.mark.parametrize(("minimum", "mean", "maximum"), LENGTHS)
def test_windows_of_random_hidden_states_have_the_stated_mean_length(minimum, mean, maximum, offset):
    """Within 3 % over 60,000 tokens, also where hidden states share a mean that moves all scores."""
    pool = dynamic(minimum, mean, maximum)
    hidden = torch.randn(1, 60_000, 64, generator=torch.Generator().manual_seed(1))
    closes = bounds_of(pool, hidden + offset * pool.signs / 8)
    lengths = closes.diff()
    assert float(lengths.double().mean()) == pytest.approx(mean, rel=0.03)
    assert minimum <= int(lengths.min()) < mean < int(lengths.max()) <= maximum


@pytest.mark.parametrize("inserted", [1, 2, 3, 5, 6, 12, 41])
def test_boundaries_find_back_to_the_same_tokens_after_an_insertion(inserted):
    """Tokens put in front move all boundaries along, but for at most twelve windows, whatever their number."""
    pool = dynamic(2, 6, 12)
    rng = torch.Generator().manual_seed(inserted)
    hidden, front = torch.randn(1, 600, 64, generator=rng), torch.randn(1, inserted, 64, generator=rng)
    plain = set(bounds_of(pool, hidden).tolist())
    moved = set((bounds_of(pool, torch.cat([front, hidden], 1)) - inserted).tolist())
    met = min(plain & moved)
    assert len([close for close in plain if close < met]) <= 12
    assert {close for close in plain if close >= met} == {close for close in moved if close >= met}
    grid = set(range(5, 600, 6))
    assert bool(grid & {close - inserted for close in range(5, 600, 6)}) == (inserted % 6 == 0)


def test_boundaries_have_no_period():
    """Over 40,000 tokens each residue of the mean length closes as many windows, within 5 SD."""
    closes = bounds_of(
        dynamic(2, 6, 12), torch.randn(1, 40_000, 64, generator=torch.Generator().manual_seed(2))
    )
    shares = torch.bincount(closes % 6, minlength=6) / len(closes)
    assert float((shares - 1 / 6).abs().max()) < 5 * (5 / 36 / len(closes)) ** 0.5


def test_a_mean_length_equal_to_the_width_is_the_fixed_grid():
    """No content ends a window then, and every entry is the scalar gate's."""
    pool = dynamic(1, 6, 6, heads=2, hidden=16)
    torch.nn.init.normal_(pool.slot_bias)
    fixed = ScalarGate(pool.grids, 16, 4)
    fixed.load_state_dict({name: x for name, x in pool.state_dict().items() if name != "signs"})
    hidden, (key, value) = torch.randn(2, 45, 16), torch.randn(2, 2, 2, 45, 4)
    mine = pool.entries(key, value, pool.state_BHTG(hidden))
    theirs = fixed.entries(key, value, fixed.state_BHTG(hidden))
    torch.testing.assert_close(mine.key_BHND, theirs.key_BHND)
    torch.testing.assert_close(mine.value_BHND, theirs.value_BHND)
    for name in (
        "position_BHN",
        "last_token_BHN",
        "visible_from_BHT",
    ):  # the last three tokens are in no entry
        assert getattr(mine, name)[1, :, :42].tolist() == getattr(theirs, name)[0, :, :42].tolist()


def test_the_hash_depends_on_its_seed_alone_and_is_the_same_in_every_dtype():
    """Neither the global generator nor a reduced precision touches it."""
    torch.manual_seed(10)
    first = Dynamic([WindowGrid(12, 6)], 64, 4, seed=5)
    torch.manual_seed(11)
    second = Dynamic([WindowGrid(12, 6)], 64, 4, seed=5)
    assert torch.equal(first.signs, second.signs)
    assert torch.equal(first.bfloat16().signs.float(), second.signs)
    assert not torch.equal(first.signs.float(), Dynamic([WindowGrid(12, 6)], 64, 4, seed=6).signs)


def test_the_hash_is_saved_with_the_model_and_wins_over_the_seed(tmp_path):
    """A checkpoint keeps its boundaries even if a later version drew others from the same seed."""
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        compression={"compressor": "dynamic", "width": 12, "stride": 6},
    )
    model = CompressedQwen3ForCausalLM(config)
    signs = model.model.layers[0].self_attn.compressor.signs
    signs.neg_()
    model.save_pretrained(tmp_path)
    loaded = CompressedQwen3ForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.model.layers[0].self_attn.compressor.signs, signs)


@pytest.mark.parametrize("lengths", [(12, 6), (8, 8), (5, 3)], ids=str)
def test_dynamic_keeps_every_law_but_the_period(lengths):
    """Also full attention at W = S = 1, reading in any two parts, and token by token."""
    verdicts = check_compressor("dynamic", width=lengths[0], stride=lengths[1])
    assert verdicts == dict.fromkeys(LAWS, "kept") | {"period": "boundaries follow content"}


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"width": 12, "stride": 6, "settings": {"minimum": 7}}, "minimum <= stride <= width"),
        ({"width": 6, "stride": 8}, "minimum <= stride <= width"),
        ({"width": 12, "stride": 6, "shift": 2}, r"no grid to shift; got \['W12/S6\+2'\]"),
        ({"width": 12, "stride": 6, "settings": {"minimum": 0}}, "minimum is 0; give a whole number"),
        ({"width": 12, "stride": 6, "settings": {"minimum": 2.5}}, "minimum is 2.5; give a whole number"),
        ({"width": 12, "stride": 6, "settings": {"seed": -1}}, "seed is -1; give a whole number"),
        ({"width": 12, "stride": 6, "settings": {"least": 2}}, "has no setting least; it has minimum, seed"),
    ],
)
def test_what_cannot_be_built_is_refused_by_the_configuration_in_one_line(plan, problem):
    """Before any model is built, and by the constructor itself with the same words."""
    with pytest.raises(UsageError, match=problem) as refused:
        CompressedQwen3Config(
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            compression={"compressor": "dynamic", **plan},
        )
    assert "\n" not in str(refused.value)
    settings = plan.get("settings", {})
    if "least" not in settings:
        with pytest.raises(UsageError, match=problem):
            Dynamic([WindowGrid(plan["width"], plan["stride"], plan.get("shift", 0))], 8, 4, **settings)
