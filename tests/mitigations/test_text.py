"""Packing real text: what the model reads is what was planned."""

import json
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from phasescope.errors import BrokenRecordError, UsageError
from phasescope.mitigations import pack_messages, pack_text, warn
from phasescope.mitigations.files import PackSettings, pack_file
from phasescope.text.tokens import Tokenizer

from .test_pack import profile

ONE_OF_FOUR = profile(0.1, 0.2, 0.9, 0.1)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}<assistant>\n"
NAMES = ["Ada", "Grace", "Edsger", "Barbara", "Alan", "Donald"]
LINES = [
    f"{name} keeps the {'red ' * (place % 3)}key in room {17 * place}." for place, name in enumerate(NAMES)
]
TEXT = "Read the notes.\n" + "\n".join(LINES) + "\nWho keeps it?"


@cache
def tokenizer() -> Tokenizer:
    """A byte-level tokenizer, trained here on a few lines; its template is a plain one."""
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        [TEXT, "= = = - -"] * 4, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet)
    )
    return Tokenizer(fast, "tiny", TEMPLATE)


def test_every_fact_stands_where_it_was_planned() -> None:
    """Read back from the ids of the padded text by its own characters; the lines are all still there."""
    packed = pack_text(TEXT, NAMES, ONE_OF_FOUR, tokenizer())
    ids, spans = tokenizer().encode_spans(packed.text)
    assert len(ids) == len(tokenizer().encode(TEXT)) + packed.added
    for name in NAMES:
        at = packed.text.index(name)
        index = next(index for index, (start, end) in enumerate(spans) if start <= at < end)
        assert index % 4 == 2
    assert [line for line in packed.text.split("\n") if line in TEXT.split("\n")] == TEXT.split("\n")
    assert {fact.phase for fact in packed.after} == {2}
    assert {fact.phase for fact in packed.before} != {2}


def test_a_chat_is_packed_through_its_template() -> None:
    """The rendered messages are the text whose positions were read; only contents change."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    padded, packed = pack_messages(messages, NAMES, ONE_OF_FOUR, tokenizer())
    assert tokenizer().render(padded) == packed.text
    assert {fact.phase for fact in packed.after} == {2}
    assert padded[0] == messages[0]
    assert messages[1]["content"] == TEXT


def test_a_limit_is_kept_and_an_insensitive_profile_adds_nothing() -> None:
    """With the limit some facts stay where they are."""
    limited = pack_text(TEXT, NAMES, ONE_OF_FOUR, tokenizer(), limit=2)
    assert 0 < limited.added <= 2
    assert pack_text(TEXT, NAMES, profile(0.9, 0.1, sensitive=False), tokenizer()).text == TEXT


def test_warnings_name_weak_facts_and_the_pads_that_would_move_them() -> None:
    """That many tokens in front do it."""
    facts = warn(TEXT, NAMES, ONE_OF_FOUR, tokenizer())
    assert any(not fact.strong for fact in facts)
    for fact in facts:
        assert (fact.position + fact.pads) % 4 == 2
        assert fact.strong == (fact.pads == 0)


@pytest.mark.parametrize(
    ("marks", "said"), [([], "no fact"), (["key"], "occurs 6 times"), (["Niklaus"], "0 times")]
)
def test_marks_that_do_not_name_one_place_are_refused(marks: list[str], said: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UsageError, match=said):
        warn(TEXT, marks, ONE_OF_FOUR, tokenizer())


def test_text_that_cannot_be_exact_is_refused() -> None:
    """A family of one character that merges into longer tokens has no text of every length."""
    with pytest.raises(UsageError, match="no neutral text of exactly"):
        pack_text(TEXT, NAMES, ONE_OF_FOUR, tokenizer(), families=["text:\ufffd\u2603"])


def records(path: Path) -> Path:
    lines = [{"text": line, "key": name, "n": 3} for line, name in zip(LINES, NAMES, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"text": "No key here."}]))
    return path


@pytest.mark.parametrize("chat", [False, True])
def test_a_file_keeps_its_lines_and_fields_and_the_prompt_reads_as_planned(
    tmp_path: Path, chat: bool
) -> None:
    """Every key's position, as the new file gives it, holds in the prompt made of the new file's texts."""
    (tmp_path / "before").write_text("Notes:\n")
    settings = PackSettings(before=tmp_path / "before", chat=chat, families=("line",))
    done = pack_file(
        records(tmp_path / "in"),
        tmp_path / "out",
        settings,
        ONE_OF_FOUR,
        tokenizer(),
    )
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    message = "Notes:\n" + "".join(line["text"] + "\n" for line in lines)
    assert message == done.message
    read = tokenizer().render([{"role": "user", "content": message}]) if chat else message
    _, spans = tokenizer().encode_spans(read)
    for line in lines[:-1]:
        start, end = spans[line["position"]]
        assert start <= read.index(line["key"]) < end
        assert (line["phase"], line["n"]) == (2, 3)
    assert sum(line["pad_tokens"] for line in lines) == done.packed.added


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("{", BrokenRecordError, "line 1 is not JSON"),
        pytest.param('{"text": ' * 9_999, BrokenRecordError, "line 1 is not JSON", id="deep"),
        ('{"t": "a"}', UsageError, "no text in 'text'"),
        ('{"text": "a", "key": "b"}', UsageError, "'b' is not in the text"),
        ('{"text": "a"}', UsageError, "no line of"),
    ],
)
def test_broken_files_are_named_by_line(
    tmp_path: Path, content: str, error: type[Exception], said: str
) -> None:
    """And nothing is written."""
    (tmp_path / "in").write_text(content)
    with pytest.raises(error, match=said):
        pack_file(
            tmp_path / "in",
            tmp_path / "out",
            PackSettings(families=("line",)),
            ONE_OF_FOUR,
            tokenizer(),
        )
    assert not (tmp_path / "out").exists()
