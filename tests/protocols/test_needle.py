"""Needles in words: positions, bindings and lengths as the protocol says, with any tokenizer."""

import tracemalloc
from collections import defaultdict

import numpy as np
import pytest
from benchmarks.made_tokenizer import CONTROL, made_tokenizer, made_words
from benchmarks.needle_128k import check

from phasescope.backends import Planted
from phasescope.errors import UsageError
from phasescope.grid import WindowGrid
from phasescope.protocols.needle import Needle
from phasescope.records import Reply
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.statistics import analyse
from phasescope.text.tokens import Tokenizer

WORDS = made_words(2000)
MADE = made_tokenizer(WORDS)
WITH_BOS = made_tokenizer(WORDS, bos=True)
SMALL = {"prompt_tokens": 400, "pairs": 24, "contexts": 9, "questions": 4}


def batches(seed: int = 0, **settings):
    protocol = Needle(**{"tokenizer": MADE, **SMALL, **settings})
    return protocol, list(protocol.batches(None, np.random.default_rng(seed)))


KINDS = [
    {},
    {"chat": True},
    {"tokenizer": WITH_BOS},
    {"tokenizer": WITH_BOS, "chat": True},
    {"value_words": 2},
    {"key_words": 2, "value_words": 2, "chat": True},
    {"tokenizer": made_tokenizer(WORDS, bare=[]), "chat": True},
    {"groups": 24, "prompt_tokens": 700},
    {"questions": 1},
    {"pairs": 1, "questions": 1},
    {"prompt_tokens": 205},
]


@pytest.mark.parametrize("settings", KINDS)
def test_a_stranger_reads_the_same_records_at_the_same_places(settings):
    """From the text of the prompts alone: keys, values, prefix freedom, sources, residues, equal lengths."""
    protocol, contexts = batches(**settings)
    for batch in contexts:
        check(protocol, batch)


@pytest.mark.parametrize("settings", KINDS)
def test_layouts_differ_in_position_alone(settings):
    """One block: the same question, answer and tokens, every residue once, the query where it was."""
    protocol, contexts = batches(**settings)
    for batch in contexts:
        blocks = defaultdict(list)
        for trial in batch:
            blocks[trial.block].append(trial)
        assert len(blocks) == protocol.questions
        for block in blocks.values():
            residues = {trial.source_position % protocol.groups for trial in block}
            assert [trial.layout for trial in block] == list(range(protocol.groups))
            assert residues == set(range(protocol.groups))
            assert len({(trial.answer_ids, trial.content, len(trial.prompt_ids)) for trial in block}) == 1
            assert len({tuple(sorted(trial.prompt_ids)) for trial in block}) == 1
            assert len({trial.prompt_ids[-protocol._suffix :] for trial in block}) == 1


@pytest.mark.parametrize("settings", KINDS)
def test_the_plan_is_what_is_asked(settings):
    """Trials, prompt tokens, and tokens read once where questions share a layout's prefix."""
    protocol, contexts = batches(**settings)
    trials = [trial for batch in contexts for trial in batch]
    plan = protocol.plan()
    assert [len(batch) for batch in contexts] == protocol.batch_sizes()
    assert plan.trials == len(trials)
    assert plan.prompt_tokens == sum(len(trial.prompt_ids) for trial in trials)
    layouts = defaultdict(list)
    for trial in trials:
        layouts[trial.cluster, trial.layout].append(trial.prompt_ids)
    read = 0
    for prompts in layouts.values():
        same = (np.array(prompts) == prompts[0]).all(axis=0)
        same[-1] = False
        shared = int(same.argmin())
        read += shared + len(prompts) * (len(prompts[0]) - shared)
    assert plan.prefix_tokens == read


def test_residue_groups_agree_in_mean_and_sd_of_position():
    """Of all contexts together, to one token; the query's residue varies over contexts."""
    _, contexts = batches(contexts=16, prompt_tokens=1000, pairs=100)
    place = np.array([trial.source_position for batch in contexts for trial in batch])
    groups = [place[place % 8 == residue] for residue in range(8)]
    assert np.ptp([group.mean() for group in groups]) <= 1
    assert np.ptp([group.std() for group in groups]) <= 1
    assert {len(batch[0].prompt_ids) for batch in contexts} == set(range(993, 1001))
    assert 400 < place.min() < place.max() < 600


def test_depth_moves_the_source():
    """From the first records to the last."""
    for depth in (0, 0.25, 1):
        _, contexts = batches(depth=depth, prompt_tokens=1200, pairs=200)
        found = np.mean([trial.source_position / 1200 for trial in contexts[0]])
        assert abs(found - depth) < 0.12


def test_distractors_are_not_in_step():
    """Records of one prompt stand at all residues, and move together with the source."""
    protocol, contexts = batches(prompt_tokens=4000, pairs=400)
    first, second = contexts[0][0], contexts[0][protocol.questions]
    colon = MADE.encode(":")[0]
    places = [np.flatnonzero(np.array(trial.prompt_ids[:-1]) == colon) for trial in (first, second)]
    assert np.bincount(places[0] % 8, minlength=8).min() > 20
    moved = second.source_position - first.source_position
    assert set((places[1] - places[0]).tolist()) == {moved}


def test_the_template_is_counted_and_the_message_known():
    """Positions are those of the whole prompt; `content` is the user's part of it."""
    protocol, contexts = batches(chat=True)
    trial = contexts[0][0]
    first, last = trial.content
    start, user, model, end = (MADE.encode(token)[0] for token in CONTROL)
    assert trial.prompt_ids[:first] == (start, user)
    assert trial.prompt_ids[last:] == (end, model)
    assert MADE.chat(MADE.decode(trial.prompt_ids[first:last])) == (list(trial.prompt_ids), (first, last))
    assert len(trial.prompt_ids) <= protocol.prompt_tokens
    assert trial.generate > len(trial.answer_ids)


def test_a_completion_begins_with_one_bos():
    """As the model expects it; the rest survives the way through text, where a server adds it."""
    _, contexts = batches(tokenizer=WITH_BOS)
    prompt = contexts[0][0].prompt_ids
    assert prompt[:1] == WITH_BOS.start_ids
    assert not WITH_BOS.doubled_start(prompt)
    assert WITH_BOS.survives(prompt[1:])


def test_the_same_seed_gives_the_same_trials():
    """And another seed others."""
    one, other, third = (batches(seed)[1] for seed in (5, 5, 6))
    assert one == other
    assert one[0][0].digest != third[0][0].digest


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("{}", 1), (" {}", 1), ("\n {}.", 1), ("{}<|end|>", 1), ("{} and more", 1), ("{}s", 1),
        ("The value is {}", 0), ("", 0), ("\n", 0), ("x{}", 0),
    ],
)  # fmt: skip
def test_an_answer_is_right_if_it_begins_with_the_value(said, score):
    """Stripped of blanks; the text is kept."""
    protocol, contexts = batches()
    trial = contexts[0][0]
    text = said.format(MADE.decode(trial.answer_ids).strip())
    seen = protocol.observe(trial, Reply((), 400, text=text, answer_logprob=-0.5), "condition")
    assert (seen.score, seen.text, seen.logprob) == (score, text, -0.5)
    assert seen.candidate_score is None


def test_ids_without_text_are_scored_by_their_text():
    """A value in other tokens is the same value."""
    protocol, contexts = batches()
    trial = contexts[0][0]
    word = MADE.decode(trial.answer_ids).strip()
    letters = [MADE.encode(letter)[0] for letter in word]
    for ids, score in ((trial.answer_ids, 1), (letters, 1), (letters[:-1], 0), (trial.answer_ids[:-1], 0)):
        assert protocol.observe(trial, Reply(tuple(ids), 400), "condition").score == score


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pairs": 0}, "pairs is 0"),
        ({"pairs": True}, "pairs is True"),
        ({"prompt_tokens": -5}, "prompt_tokens is -5"),
        ({"prompt_tokens": 10**9}, "whole number from"),
        ({"groups": 1}, "groups is 1"),
        ({"contexts": 2.5}, "contexts is 2.5"),
        ({"questions": 0}, "questions is 0"),
        ({"questions": 25}, "ask at most 24"),
        ({"depth": 1.5}, "depth is 1.5"),
        ({"depth": float("nan")}, "depth is nan"),
        ({"value_words": 9}, "from 1 to 4"),
        (
            {"prompt_tokens": 190},
            "do not fit into 190 prompt tokens; give at least 205 tokens, or at most 20",
        ),
        ({"prompt_tokens": 20}, "give at least 205 tokens$"),
        ({"pairs": 5000, "prompt_tokens": 10**6, "value_words": 1}, "too few for 5000 pairs"),
        ({"question": "Which?"}, "hold '{key}' once"),
        ({"instruction": "Lines"}, "line break"),
        ({"tokenizer": Tokenizer(MADE.fast, "base"), "chat": True}, "no chat template"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, problem):
    """In one line: what was given, what is allowed."""
    with pytest.raises(UsageError, match=problem) as caught:
        batches(**settings)
    assert "\n" not in str(caught.value)


def test_room_said_to_be_enough_is_enough():
    """The least length that the refusal names works, and one token less is refused again."""
    assert len(batches(prompt_tokens=205)[1]) == 9
    with pytest.raises(UsageError, match="give at least 205"):
        batches(prompt_tokens=204)


def test_a_tokenizer_that_joins_lines_is_refused():
    """Where text is read as other tokens, positions would be wrong."""
    joining = made_tokenizer(WORDS)
    joining.fast.add_tokens([f"{word}:" for word in WORDS])
    with pytest.raises(UsageError, match="reads the text of a prompt as other tokens"):
        batches(tokenizer=Tokenizer(joining.fast, "joining"))


def test_settings_name_the_tokenizer_by_its_digest():
    """A resumed run with another tokenizer is another run."""
    described = Needle(tokenizer=MADE, **SMALL).describe()
    assert described["settings"]["tokenizer"] == {"name": "made", "digest": MADE.digest}
    assert (described["name"], described["moves"]) == ("needle", "source")


@pytest.mark.parametrize(
    ("curve", "period"), [([0.9, 0.9, 0.6, 0.9], 4), ([0.85, 0.6], 2), ([0.8] * 4, None)]
)
def test_planted_periods_of_2_and_4_are_found_in_eight_groups(tmp_path, curve, period):
    """From protocol to finding, with noise of contexts and layouts; without an effect there is none."""
    grid = WindowGrid(len(curve), len(curve))
    planted = Planted(grid=grid, curve=curve, cluster_sd=0.4, layout_sd=0.2, block_sd=0.3, seed=3)
    protocol = Needle(tokenizer=MADE, prompt_tokens=260, pairs=24, contexts=25, questions=8)
    run([Condition("planted", planted, protocol)], tmp_path, seed=1)
    observations = read_run(tmp_path).observations["planted"]
    found = analyse(observations, stride=None, fold=8, residues=8, rng=np.random.default_rng(0), draws=1000)
    for outcome in ("accuracy", "logprob"):
        named = next(finding for finding in found if (finding.name, finding.outcome) == ("period", outcome))
        assert {2, 3, 4} <= set(named.detail["tested"])
        assert named.value == period
        assert period is None or named.p_value < 0.01


@pytest.mark.slow
def test_a_full_size_context_is_built_in_little_memory():
    """128K tokens, 16K pairs, eight layouts, eight questions: every prompt costs one tuple."""
    tokenizer = made_tokenizer(made_words(75_000))
    assert tokenizer.size > 150_000
    protocol = Needle(tokenizer=tokenizer, contexts=8)
    drawn = protocol.batches(None, np.random.default_rng(0))
    tracemalloc.start()
    batch = next(drawn)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert len(batch) == 64
    assert len(batch[0].prompt_ids) > 131_000
    check(protocol, batch)
