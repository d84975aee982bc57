"""What each padding moves, what it holds still, and that residues are comparable."""

import itertools
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from phasescope import Trial, UsageError
from phasescope.protocols import InSequencePadding, PrefixPadding, QueryPadding
from phasescope.records import Observation
from phasescope.statistics.fold import identified_fold
from phasescope.statistics.interaction import find_interaction
from phasescope.statistics.table import tabulate
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(32, 96, 96)
PADDINGS = [PrefixPadding, InSequencePadding, QueryPadding]
SOURCE_PADDINGS = [PrefixPadding, InSequencePadding]
Kind = type[PrefixPadding] | type[InSequencePadding] | type[QueryPadding]


def batches(kind: Kind, seed: int = 0, **settings: Any) -> list[tuple[Trial, ...]]:
    """All batches that a seed draws."""
    return list(kind(**settings).batches(VOCABULARY, np.random.default_rng(seed)))


def moments(positions: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Count, mean and SD of the positions in every residue mod 24."""
    groups = [positions[positions % 24 == residue] for residue in range(24)]
    return [len(group) for group in groups], *(np.array([f(g) for g in groups]) for f in (np.mean, np.std))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", SOURCE_PADDINGS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pairs": 24},
        {"questions": 24},
        {"pairs": 16},
        {"pairs": 12},
        {"pairs": 32},
        {"contexts": 48},
        {"contexts": 5},
    ],
    ids=str,
)
def test_residues_agree_in_count_mean_and_sd_of_the_source_position(
    kind: Kind, settings: dict[str, int], seed: int
) -> None:
    """Any two residue groups are equally large and agree in mean and SD to 0.5 token."""
    trials = [trial for batch in batches(kind, seed, **settings) for trial in batch]
    count, mean, sd = moments(np.array([trial.source_position for trial in trials]))
    assert len(set(count)) == 1
    assert np.ptp(mean) <= 0.5
    assert np.ptp(sd) <= 0.5


@pytest.mark.parametrize(("contexts", "tolerance"), [(24, 1e-9), (48, 1e-9), (25, 1.0)])
def test_residues_of_a_moving_query_agree_in_count_and_mean(contexts: int, tolerance: float) -> None:
    """The query's own residue varies, all else held: exactly balanced in whole rounds of contexts."""
    trials = [trial for batch in batches(QueryPadding, pairs=3, contexts=contexts) for trial in batch]
    count, mean, _ = moments(np.array([len(trial.prompt_ids) - 1 for trial in trials]))
    assert len(set(count)) == 1
    assert np.ptp(mean) <= tolerance


@pytest.mark.parametrize("kind", PADDINGS)
def test_every_block_visits_every_residue_of_the_moved_coordinate_once(kind: Kind) -> None:
    """A block is one question at all residues mod 24, one per layout, and nothing else differs."""
    for batch in batches(kind, pairs=14, contexts=3, questions=9):
        blocks: dict[str, list[Trial]] = {}
        for trial in batch:
            blocks.setdefault(trial.block, []).append(trial)
        assert len(blocks) == 9
        for trials in blocks.values():
            moved = [t.source_position if kind.moves == "source" else len(t.prompt_ids) - 1 for t in trials]
            still = {len(t.prompt_ids) if kind.moves == "source" else t.source_position for t in trials}
            assert sorted(position % 24 for position in moved) == list(range(24))
            assert sorted(trial.layout for trial in trials) == list(range(24))
            assert len(still) == 1
            assert len({(t.prompt_ids[-1], t.answer_ids, t.candidate_ids, t.cluster) for t in trials}) == 1


@pytest.mark.parametrize("kind", PADDINGS)
def test_a_prompt_holds_its_records_between_fillers_and_ends_with_the_asked_key(kind: Kind) -> None:
    """Key and value are adjacent at the source position; keys and values appear nowhere else."""
    for trial in batches(kind, pairs=10, contexts=2)[1]:
        ids, source = trial.prompt_ids, trial.source_position
        assert (ids[source], ids[source + 1]) == (ids[-1], *trial.answer_ids)
        keys = [position for position, token in enumerate(ids[:-1]) if token in VOCABULARY.keys]
        values = [position for position, token in enumerate(ids) if token in VOCABULARY.values]
        assert len(keys) == 10
        assert values == [position + 1 for position in keys]
        assert trial.candidate_ids == tuple(ids[position] for position in values)
        assert Counter(ids[:-1])[ids[-1]] == 1
        assert values[-1] + 12 < len(ids) - 1  # the margin: no record in the unfinished last window


@pytest.mark.parametrize("kind", PADDINGS)
def test_layouts_of_a_context_read_the_same_records_and_fillers_in_the_same_order(kind: Kind) -> None:
    """Only the places of the records among the fillers differ (and, for a moving query, how many follow)."""
    for batch in batches(kind, pairs=10, contexts=2):
        prompts = {trial.layout: trial.prompt_ids[:-1] for trial in batch}
        assert (
            len(
                {tuple(token for token in ids if token not in VOCABULARY.fillers) for ids in prompts.values()}
            )
            == 1
        )
        fillers = sorted(
            (tuple(token for token in ids if token in VOCABULARY.fillers) for ids in prompts.values()),
            key=len,
        )
        assert all(longest[: len(shorter)] == shorter for shorter, longest in pairwise(fillers))
        assert len(set(map(len, fillers))) == (24 if kind is QueryPadding else 1)


def starts(batch: tuple[Trial, ...]) -> np.ndarray:
    """Where each record begins, [layouts, records]."""
    prompts = {trial.layout: trial.prompt_ids[:-1] for trial in batch}
    return np.array(
        [[t for t, token in enumerate(prompts[layout]) if token in VOCABULARY.keys] for layout in range(24)]
    )


def test_prefix_padding_moves_distractors_with_the_source() -> None:
    """The distance between two records is the same in every layout."""
    distances = np.diff(starts(batches(PrefixPadding)[0]), axis=1)
    assert (distances == 2).all()


def test_in_sequence_padding_unlocks_distractors_from_the_source() -> None:
    """Gaps of 0, 1 and 2 fillers are about equally common, and far records lose each other's phase.

    With the source's phase given, a distractor 32 records away stands on every phase of stride 4; the
    most common one has less than half of the layouts, where prefix padding has them all.
    """
    shares, gaps = [], Counter[int]()
    for batch in batches(InSequencePadding, contexts=24):
        place = starts(batch)
        gaps.update((np.diff(place, axis=1) - 2).ravel().tolist())
        offset = (place[:, 48] - place[:, 16]) % 4
        shares.append(np.bincount(offset, minlength=4) / len(offset))
    assert set(gaps) == {0, 1, 2}
    assert min(gaps.values()) > 0.3 * gaps.total()
    assert np.max(np.mean(shares, axis=0)) < 0.5
    assert np.min(np.mean(shares, axis=0)) > 0.1


@pytest.mark.parametrize("kind", PADDINGS)
def test_the_query_residue_varies_over_contexts_independently_of_the_source(kind: Kind) -> None:
    """Over 24 contexts the first layout's query stands on every residue once, unrelated to its source."""
    firsts = [batch[0] for batch in batches(kind, contexts=24, pairs=24)]
    ends = [len(trial.prompt_ids) % 24 for trial in firsts]
    assert sorted(ends) == list(range(24))
    assert len({(len(trial.prompt_ids) - trial.source_position) % 24 for trial in firsts}) > 8


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("settings", [{"pairs": 24}, {"pairs": 5, "contexts": 48}, {"questions": 7}], ids=str)
def test_the_plan_says_beforehand_what_the_batches_hold(kind: Kind, settings: dict[str, int]) -> None:
    """Batch sizes are exact; tokens too in whole rounds of 24 contexts, and within 1 % otherwise."""
    drawn = batches(kind, **settings)
    plan = kind(**settings).plan()
    trials = [trial for batch in drawn for trial in batch]
    assert [len(batch) for batch in drawn] == kind(**settings).batch_sizes()
    assert plan.trials == len(trials)
    prompt_tokens = sum(len(trial.prompt_ids) for trial in trials)
    prefixes = {(trial.cluster, trial.layout): len(trial.prompt_ids) - 1 for trial in trials}
    tolerance = 0 if settings.get("contexts") == 48 else 0.01
    assert plan.prompt_tokens == pytest.approx(prompt_tokens, rel=tolerance)
    assert plan.prefix_tokens == pytest.approx(sum(prefixes.values()) + len(trials), rel=tolerance)


@pytest.mark.parametrize(
    ("kind", "pairs", "asked"),
    [
        (PrefixPadding, 64, 64),
        (PrefixPadding, 47, 36),
        (PrefixPadding, 12, 12),
        (PrefixPadding, 11, 11),
        (InSequencePadding, 64, 64),
        (InSequencePadding, 31, 24),
        (InSequencePadding, 7, 7),
    ],
)
def test_by_default_whole_rounds_of_residues_are_asked(kind: Kind, pairs: int, asked: int) -> None:
    """12 records in prefix padding (2 tokens apart), 8 in-sequence (3 apart on average), or nearly all."""
    assert kind(pairs=pairs).asked == asked


def test_the_asked_records_are_a_run_that_starts_elsewhere_in_other_contexts() -> None:
    """Over contexts every record is asked; within one they are neighbours."""
    runs = []
    for batch in batches(PrefixPadding, questions=12, contexts=25):
        asked = sorted({int(trial.block.split("k")[1]) for trial in batch})
        assert asked == list(range(asked[0], asked[0] + 12))
        runs.append(asked[0])
    assert min(runs) < 5
    assert max(runs) > 47
    assert len(set(runs)) > 20


@pytest.mark.parametrize("kind", PADDINGS)
def test_the_same_seed_asks_the_same_and_another_seed_does_not(kind: Kind) -> None:
    """A resumed run regenerates its trials from the seed."""
    assert batches(kind, 3, pairs=6, contexts=2) == batches(kind, 3, pairs=6, contexts=2)
    assert batches(kind, 3, pairs=6, contexts=2) != batches(kind, 4, pairs=6, contexts=2)


def test_another_modulus_visits_its_own_residues() -> None:
    """With 16 layouts each block covers every residue mod 16, for a stride that 24 can't hold."""
    for batch in batches(InSequencePadding, pairs=6, contexts=2, residues=16):
        for block in {trial.block for trial in batch}:
            residues = [trial.source_position % 16 for trial in batch if trial.block == block]
            assert sorted(residues) == list(range(16))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": 0}, "pairs is 0; give a whole number from 1 to 65,536"),
        ({"contexts": 2.5}, "contexts is 2.5"),
        ({"residues": 1}, "residues is 1; give a whole number from 2 to"),
        ({"questions": 0}, "questions is 0"),
        ({"questions": 65}, "65 questions about 64 pairs; ask at most 64"),
        ({"margin": -1}, "margin is -1"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    """What was given and what is allowed."""
    with pytest.raises(UsageError, match=message) as caught:
        PrefixPadding(**settings)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_that_is_too_small_is_refused() -> None:
    """97 pairs need 97 keys."""
    with pytest.raises(UsageError, match="97 pairs asked for; this vocabulary allows 1 to 96"):
        batches(PrefixPadding, pairs=97)


@pytest.mark.parametrize("kind", PADDINGS)
def test_the_description_says_what_moves_and_every_setting(kind: Kind) -> None:
    """The analysis folds the coordinate that the description names."""
    described = kind(pairs=24).describe()
    assert (described["name"], described["moves"]) == (kind.name, kind.moves)
    assert described["settings"] == {
        "pairs": 24,
        "contexts": 25,
        "residues": 24,
        "questions": None,
        "margin": 12,
    }
    assert described["plan"]["trials"] == 25 * 24 * 24


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pairs": 10**12}, "pairs is 1000000000000; give a whole number from 1 to 65,536"),
        ({"contexts": 10**300}, "contexts is 1000"),
        ({"residues": 10**9}, "residues is 1000000000"),
        ({"pairs": 60_000, "residues": 60_000}, "places in a context"),
    ],
)
def test_settings_without_bound_are_refused_before_anything_is_drawn(
    settings: dict[str, int], said: str
) -> None:
    """A run.json can hold any number."""
    with pytest.raises(UsageError, match=said):
        PrefixPadding(**settings)


@pytest.mark.parametrize("padding", [PrefixPadding, InSequencePadding, QueryPadding])
def test_two_contexts_tell_an_interaction_from_either_residue(padding, rng):
    """Right answers that go by (source + query) mod 8 alone cancel at each source and each query residue."""
    observations = []
    for trial in itertools.chain(*padding(pairs=24, contexts=6, questions=8).batches(VOCABULARY, rng)):
        query = len(trial.prompt_ids) - 1
        score = float((trial.source_position + query) % 8 < 5 + rng.integers(-1, 2))
        facts = trial.facts("sum")
        observations.append(Observation(**facts, prompt_tokens=query + 1, answer=1, score=score))
    table = tabulate(observations)
    fold = identified_fold(table, padding.moves, 8)
    found = find_interaction(table, "accuracy", fold, rng, 99)
    assert (found.p_value, found.together) == (0.01, "sum")
