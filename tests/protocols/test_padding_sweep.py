"""A padding sweep asks exactly what it says: L tokens more, and every token of the prompt as it was."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.protocols import PaddingSweep, Prompt
from phasescope.protocols.padding_sweep import parse_lengths
from phasescope.records import Reply
from phasescope.text.padding import FAMILIES, even
from phasescope.text.prompts import read_prompts
from phasescope.text.scorers import Scorer
from phasescope.text.tokens import Tokenizer
from tests.builders.text_tokenizer import STRIPPING, load

TEXT = "the scale is kept in FP32.\n<pad>values of a block are stored in FP"
EXAMPLE = Path(__file__).parents[2] / "examples" / "fp8_quantiser" / "quantiser.py.txt"
REAL = Path(os.environ.get("PHASESCOPE_TOKENIZERS", "tokenizers"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """The small tokenizer."""
    return load(tmp_path_factory.mktemp("small"))


def prompt(text=TEXT, **fields):
    """A prompt with its answers."""
    return Prompt(**{"name": "p", "prompt": text, "expected": "8", "rival": ("32",), **fields})


def sweep(tokenizer, text=TEXT, **settings):
    """A sweep of one prompt at the mark."""
    given = {"lengths": tuple(range(6)), "placement": "mark", "families": ("line", "comment"), **settings}
    return PaddingSweep(prompts=(prompt(text),), tokenizer=tokenizer, **given)


def trials(protocol):
    """All trials by family and length."""
    drawn = (t for batch in protocol.batches(None, np.random.default_rng(0)) for t in batch)
    return {(t.block.rpartition("/")[2], t.layout): t for t in drawn}


def test_each_prompt_has_exactly_l_tokens_more_and_is_the_tokenizers_own_reading(tokenizer):
    """Decoded and encoded again it has the same ids; what is before and after the pad never changes."""
    head, rest = (tokenizer.encode(part) for part in TEXT.split("<pad>"))
    asked = trials(sweep(tokenizer))
    assert len(asked) == 12
    for (_, length), trial in asked.items():
        ids = list(trial.prompt_ids)
        assert len(ids) == len(head) + length + len(rest)
        assert ids[: len(head)] == head
        assert ids[len(head) + length :] == rest
        assert tokenizer.survives(ids)
        assert trial.source_position == len(head) + length


def test_in_front_the_start_token_stays_first(tmp_path):
    """A BOS is part of every prompt, and the pad comes after it."""
    tokenizer = load(tmp_path, start=True)
    assert tokenizer.start_ids == (2,)
    asked = trials(sweep(tokenizer, "values of a block are stored in FP", placement="front"))
    for (_, length), trial in asked.items():
        assert trial.prompt_ids[0] == 2
        assert trial.source_position == 1 + length
        assert list(trial.prompt_ids[1 + length :]) == tokenizer.encode("values of a block are stored in FP")
    spelt = trials(sweep(tokenizer, "<s>values are stored in FP", placement="front", lengths=(0, 1)))
    assert spelt["line", 0].prompt_ids.count(2) == 1


def test_around_a_middle_length_and_query_stay_and_the_middle_moves(tokenizer):
    """The second pad takes up what the first leaves."""
    text = "the scale\n<pad>is kept in FP32.\n</pad>values of a block are stored in FP"
    protocol = sweep(tokenizer, text, placement="around", lengths=(2, 3, 4, 5), source_mark=None)
    asked = trials(protocol)
    assert len({len(t.prompt_ids) for t in asked.values()}) == 1
    first = {length: t.source_position for (family, length), t in asked.items() if family == "line"}
    assert np.diff([first[length] for length in (2, 3, 4, 5)]).tolist() == [1, 1, 1]
    middle = tokenizer.encode("is kept in FP32.\n")
    for trial in asked.values():
        assert list(trial.prompt_ids[trial.source_position :][: len(middle)]) == middle
    assert protocol.describe()["comparable"]


def test_a_marked_source_is_the_token_that_is_asked_about(tokenizer):
    """Behind the pad it moves with it; before it, it stays, and the query is what moves."""
    behind = sweep(tokenizer, TEXT.replace("block", "@block"), source_mark="@")
    at = trials(behind)["line", 3]
    assert tokenizer.decode(at.prompt_ids[at.source_position :]).lstrip().startswith("block")
    assert behind.describe()["moves"] == "source"
    before = sweep(tokenizer, TEXT.replace("kept", "@kept"), source_mark="@")
    assert {t.source_position for t in trials(before).values()} == {before.cases[0].source}
    assert before.describe()["moves"] == "query"


def test_in_a_chat_template_the_pad_stands_inside_the_message(tokenizer):
    """The template's tokens are counted, and the answer follows the turn that it opens."""
    protocol = sweep(tokenizer, chat=True, system="answer")
    whole = tokenizer.chat(TEXT.replace("<pad>", ""), system="answer")[0]
    asked = trials(protocol)
    assert list(asked["line", 0].prompt_ids) == whole
    padded = asked["line", 4]
    assert len(padded.prompt_ids) == len(whole) + 4
    opening = tokenizer.encode("<|im_start|>assistant\n")
    assert list(padded.prompt_ids[-len(opening) :]) == opening


def test_a_template_that_strips_the_pad_drops_the_family_and_says_so(tmp_path):
    """Blank lines in front of a trimmed message would vanish."""
    tokenizer = load(tmp_path, template=STRIPPING)
    text = "values of a block are stored in FP"
    protocol = sweep(
        tokenizer, text, chat=True, placement="front", families=("line", "blank"), lengths=(2, 3)
    )
    assert list(protocol.cases[0].pads) == ["line"]
    assert "read as a whole" in protocol.dropped["blank"]
    assert protocol.describe()["dropped_families"] == protocol.dropped


def test_a_family_that_merges_with_the_prompt_is_dropped_not_approximated(tokenizer):
    """A letter in front of a word becomes part of it."""
    protocol = sweep(tokenizer, TEXT, families=("line", "text:\u00e9"), lengths=(1, 2, 3))
    assert "text 1" not in protocol.cases[0].pads
    assert "no pad of exactly" in protocol.dropped["text 1"]


def test_the_plan_is_what_is_spent(tokenizer):
    """Trials and tokens, in every placement."""
    around = TEXT.replace(" stored", "</pad> stored")
    for text, placement in ((TEXT.replace("<pad>", ""), "front"), (TEXT, "mark"), (around, "around")):
        protocol = sweep(tokenizer, text, placement=placement)
        asked = trials(protocol).values()
        assert protocol.plan().trials == len(asked) == sum(protocol.batch_sizes())
        assert protocol.plan().prompt_tokens == sum(len(t.prompt_ids) for t in asked)


def test_with_rivals_the_first_token_decides_without_the_whole_answer(tokenizer):
    """Answers are compared where they part; the strongest rival is kept."""
    protocol = sweep(tokenizer)
    trial = trials(protocol)["line", 1]
    eight, three = tokenizer.encode("8")[0], tokenizer.encode("32")[0]
    assert (trial.answer_ids, trial.candidate_ids) == ((eight,), (eight, three))
    reply = Reply((three,), len(trial.prompt_ids), math.log(0.2), (math.log(0.2), math.log(0.7)))
    seen = protocol.observe(trial, reply, "m")
    assert (seen.score, seen.candidate_score, seen.text) == (0.0, 0.0, tokenizer.decode([three]))
    assert seen.margin == pytest.approx(math.log(0.2 / 0.7))
    alone = PaddingSweep(
        prompts=(prompt(expected="8, the scale", rival=()),),
        tokenizer=tokenizer,
        lengths=(0, 1),
        placement="mark",
    )
    assert list(trials(alone)["line", 0].answer_ids) == tokenizer.encode("8, the scale")


def test_a_server_that_gives_text_alone_is_scored_by_its_beginning(tokenizer):
    """Neither ids nor log-probabilities: the score is all there is."""
    protocol = sweep(tokenizer)
    trial = trials(protocol)["line", 1]
    seen = protocol.observe(trial, Reply((), 9, text=" 8 and"), "m")
    assert (seen.score, seen.answer, seen.logprob, seen.margin) == (1.0, None, None, None)


def test_a_scorer_reads_the_text_without_control_tokens(tokenizer):
    """The continuation is generated, not scored by probability."""
    protocol = sweep(tokenizer, scorer=Scorer.load("exact"), new_tokens=7)
    trial = trials(protocol)["line", 2]
    assert (trial.answer_ids, trial.candidate_ids, trial.new_tokens) == ((), (), 7)
    end = tokenizer.encode("<|im_end|>")
    seen = protocol.observe(trial, Reply((*tokenizer.encode(" 8"), *end), 9), "m")
    assert (seen.score, seen.text, seen.logprob) == (1.0, " 8", None)


def test_a_prompt_of_ids_needs_no_tokenizer():
    """The positive control's way in: models without a tokenizer."""
    given = Prompt(
        name="q", prompt_ids=(5, 6, 7, 8), expected_ids=(9,), rival_ids=((3,),), at=1, until=3, source=2
    )
    protocol = PaddingSweep(
        prompts=(given,), lengths=(0, 1, 2), families=("ids:1,2", "line"), placement="around"
    )
    asked = trials(protocol)
    assert asked["ids 1", 0].prompt_ids == (5, 6, 7, 1, 2, 8)
    assert asked["ids 1", 1].prompt_ids == (5, 1, 6, 7, 1, 8)
    assert asked["ids 1", 2].source_position == 4
    assert "line" in protocol.dropped


def test_settings_are_json_and_name_prompts_by_digest_alone(tokenizer):
    """The run's description holds no prompt, but tells two of them apart."""
    one, two = sweep(tokenizer), sweep(tokenizer, TEXT.replace("values", "scales"))
    assert "values" not in json.dumps(one.describe())
    assert one.settings()["prompts"] != two.settings()["prompts"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"text": "no mark FP"}, "has the mark '<pad>' 0 times"),
        ({"text": TEXT + "<pad>"}, "2 times"),
        ({"text": TEXT, "placement": "front"}, "but pads go to the front"),
        ({"text": "values<pad>"}, "no text after a mark"),
        ({"text": "the sc<pad>ale of a block", "lengths": (0, 2)}, "splits a token"),
        ({"placement": "back"}, "give front, mark or around"),
        ({"text": "a</pad> b <pad>c", "placement": "around"}, "put it after"),
        ({"text": "a <pad>b </pad>c", "placement": "around", "lengths": (0, 1, 5)}, "equal steps"),
        ({"lengths": (3,)}, "two or more"),
        ({"lengths": (-1, 3)}, "from 0 to 512"),
        ({"lengths": (1, 1)}, "two or more different"),
        ({"lengths": (1, 100_000)}, "from 0 to 512"),
        ({"families": ("lines",)}, "unknown padding family"),
        ({"families": ("ids:1",)}, "no padding family can be used"),
        ({"system": "be brief"}, "ask for chat"),
        ({"source_mark": "@"}, "has the mark '@' 0 times"),
        ({"new_tokens": 0}, "at least 1"),
        ({"tokenizer": None}, "needs the model's tokenizer"),
        ({"text": TEXT + " ", "expected": "yes", "rival": ()}, "joins the prompt's end"),
        ({"expected": "39", "rival": ("37",)}, "begin with the same token '3'"),
        ({"expected": ""}, "no expected continuation"),
        ({"expected": "", "scorer": Scorer.load("exact")}, "needs an expected text"),
    ],
)
def test_settings_that_cannot_be_asked_are_one_line(tokenizer, settings, said):
    """What was given, and what to do."""
    settings = {"lengths": (2, 3), "placement": "mark", "tokenizer": tokenizer, **settings}
    fields = {name: settings.pop(name) for name in ("expected", "rival") if name in settings}
    with pytest.raises(UsageError, match=said.replace("(", r"\(")) as error:
        PaddingSweep(prompts=(prompt(settings.pop("text", TEXT), **fields),), **settings)
    assert "\n" not in str(error.value)


def test_lengths_are_read_as_python_counts():
    """A range without its end, with a step, or a list."""
    assert parse_lengths("24:27") == (24, 25, 26)
    assert parse_lengths("0:8:4") == (0, 4)
    assert parse_lengths("1,5") == (1, 5)
    assert len(parse_lengths("0:99999999999")) < 1000
    for bad in ("", "a", "1:", "1-4", "1:2:0", "1:2:3:4"):
        with pytest.raises(UsageError, match="lengths"):
            parse_lengths(bad)


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "deepseek_v3", "smollm2"])
def test_the_example_can_be_asked_with_real_tokenizers(name):
    """Sixteen lengths in every family, exact under each; skipped where the tokenizer is not there."""
    if not (REAL / name / "tokenizer.json").exists():
        pytest.skip(f"no tokenizer in {REAL / name}; set PHASESCOPE_TOKENIZERS")
    prompts = read_prompts([EXAMPLE], expected="8", rivals=["32"])
    protocol = PaddingSweep(
        prompts=prompts,
        lengths=tuple(range(24, 40)),
        families=tuple(FAMILIES),
        placement="mark",
        tokenizer=Tokenizer.load(REAL / name),
    )
    # SmolLM2 joins blanks two by two, so that no run of them has an odd number of tokens.
    usable = [family for family in FAMILIES if (name, family) != ("smollm2", "spaces")]
    assert list(protocol.cases[0].pads) == usable
    assert protocol.cases[0].answers[0] == "8"


def test_a_pad_that_repeats_several_tokens_is_named(tokenizer):
    """It has a period of its own, which any model may follow."""
    given = Prompt(name="q", prompt_ids=(5, 6, 7, 8), expected_ids=(9,))
    protocol = PaddingSweep(prompts=(given,), lengths=tuple(range(24)), families=("ids:1,2,3,4", "ids:7"))
    assert protocol.repeating == {"ids 1": 4}
    words = sweep(tokenizer, lengths=tuple(range(2, 24)), families=("line", "sentence"))
    assert words.repeating == {}
    assert words.describe()["repeating_families"] == {}


def test_pads_of_one_family_differ_in_nothing_but_length(tokenizer):
    """One token over and over between the same beginning and end, in every family of a repeated unit."""
    protocol = sweep(tokenizer, lengths=tuple(range(4, 24)), families=("line", "spaces", "comment", "blank"))
    assert protocol.cases[0].pads
    for pads in protocol.cases[0].pads.values():
        assert even(pads)
