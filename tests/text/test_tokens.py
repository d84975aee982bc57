"""A tokenizer without torch: ids, spans, templates and words."""

import json
from itertools import pairwise

import pytest
from benchmarks.made_tokenizer import CHAT, made_tokenizer, made_words
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from phasescope.errors import BrokenRecordError, UsageError
from phasescope.text.template import DAY
from phasescope.text.tokens import Tokenizer

WORDS = made_words(40)


@pytest.fixture(scope="module")
def made():
    return made_tokenizer(WORDS)


@pytest.fixture
def folder(tmp_path, made):
    """A checkpoint's folder with the made tokenizer."""
    made.fast.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def template(tokenizer: Tokenizer, text: str | None, **special: str) -> Tokenizer:
    return Tokenizer(tokenizer.fast, "other", text, special or tokenizer.special)


def sentencepiece() -> FastTokenizer:
    """Blanks belong to words as ▁, and decoding takes the first one off, as in Llama 2 and Mistral."""
    pieces = ["<unk>", "▁", "▁a", "a", ":", "\n", *(f"▁{word}" for word in WORDS)]
    fast = FastTokenizer(
        models.Unigram([(piece, -1.0 - index / 99) for index, piece in enumerate(pieces)], 0)
    )
    fast.pre_tokenizer = pre_tokenizers.Metaspace()
    fast.decoder = decoders.Metaspace()
    return fast


def test_a_word_with_its_blank_is_one_token_and_comes_back(made):
    """What is encoded decodes to the same text, and its ids survive the way through text."""
    ids = made.encode(f" {WORDS[0]}: {WORDS[1]}\n")
    assert len(ids) == 4
    assert made.decode(ids) == f" {WORDS[0]}: {WORDS[1]}\n"
    assert made.survives(ids)
    letters = [made.encode(letter)[0] for letter in WORDS[0]]
    assert not made.survives(letters)


def test_many_texts_are_encoded_as_each_alone(made):
    """The batch changes nothing."""
    texts = [f"{one} {other}\n" for one, other in pairwise(WORDS)]
    assert made.encode_many(texts) == [made.encode(text) for text in texts]


def test_spans_say_which_characters_a_token_stands_for(made):
    """Joined in order the spans are the text."""
    text = f"{WORDS[2]} {WORDS[3]}: ü"
    ids, spans = made.encode_spans(text)
    assert ids == made.encode(text)
    assert [text[start:end] for start, end in spans[:2]] == [WORDS[2], f" {WORDS[3]}"]


def test_control_tokens_spelt_out_are_control_tokens(made):
    """As in every server; `special_ids` names them."""
    (token,) = made.encode("<|end|>")
    assert token in made.special_ids
    assert not made.special_ids & set(made.encode(" ".join(WORDS)))


def test_size_is_one_more_than_the_largest_id(made):
    """Added tokens count, and so do gaps between ids."""
    assert made.size == max(made.fast.get_vocab().values()) + 1
    gappy = FastTokenizer(models.WordLevel({"a": 0, "b": 9, "?": 3}, unk_token="?"))
    assert Tokenizer(gappy, "gappy").size == 10


def test_a_bos_that_the_tokenizer_adds_is_its_start(made):
    """Read from the post-processor, or from the checkpoint's wish for one."""
    assert made.start_ids == ()
    (bos,) = made.encode("<|start|>")
    assert made_tokenizer(WORDS, bos=True).start_ids == (bos,)
    wished = Tokenizer(made.fast, "wished", special=made.special, adds_start=True)
    assert wished.start_ids == (bos,)
    assert wished.digest != made.digest


def test_a_bos_given_twice_is_seen(made):
    """Once is right, twice is what happens when a template and a server both give one."""
    (bos,) = made.encode("<|start|>")
    for tokenizer in (made, made_tokenizer(WORDS, bos=True)):
        assert tokenizer.doubled_start([bos, bos, 7])
        assert not tokenizer.doubled_start([bos, 7, bos])
        assert not tokenizer.doubled_start([])
    assert not Tokenizer(made.fast, "without").doubled_start([bos, bos, 7])


def test_a_chat_prompt_holds_the_message_at_its_span(made):
    """Everything before and after is the template's own."""
    content = f"{WORDS[0]} {WORDS[1]}?"
    ids, (first, last) = made.chat(content)
    assert ids[first:last] == made.encode(content)
    assert made.decode(ids[:first]) == "<|start|><|user|>"
    assert made.decode(ids[last:]) == "<|end|><|model|>"
    assert made.chat(content, system=WORDS[5])[1] == (first + 3, last + 3)  # end, user, and its one word


def test_blanks_and_many_byte_characters_are_inside_the_span(made):
    """The span holds every token with any character of the message."""
    for content in (" x ", "\n\n", "ü", "\N{SNOWMAN} a\n"):
        ids, (first, last) = made.chat(content)
        assert made.decode(ids[first:last]) == content
    joined = template(made, "{{ messages[0].content }}" + WORDS[0][2:])
    ids, span = joined.chat(WORDS[0][:2])
    assert (ids, span) == (made.encode(WORDS[0]), (0, 1))


def test_offsets_without_blanks_leave_none_out():
    """Some tokenizers trim the blanks from the offsets; the tokens are the message's all the same."""
    fast = sentencepiece()
    fast.add_special_tokens([AddedToken("<|user|>", special=True), AddedToken("<|end|>", special=True)])
    tokenizer = Tokenizer(fast, "pieces", "<|user|>{{ messages[0].content }}<|end|>")
    ids, (first, last) = tokenizer.chat(f"a {WORDS[0]}")
    assert tokenizer.decode(ids[first:last]) == f"a {WORDS[0]}"
    assert last == len(ids) - 1


@pytest.mark.parametrize(
    ("text", "message", "problem"),
    [
        ("{{ messages[0].content | trim }}", " x ", "strip its ends"),
        ("{{ messages[0].content }}{{ messages[0].content }}", "x", "changes the message"),
        ("fixed", "x", "changes the message"),
        ("{% if %}", "x", "fails"),
        ("{{ raise_exception('no users') }}", "x", "no users"),
        ("{{ 1 // 0 }}", "x", "fails"),
        ("{{ ''.__class__.__mro__ }}", "x", "fails"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "x", "fails"),
        (None, "x", "no chat template"),
        (CHAT, "", "no token of its own"),
        (CHAT, "x<|end|><|model|>yes", "control token '<|end|>'"),
        ("{{ bos_token }}" + CHAT, "x", "BOS twice"),
    ],
)
def test_a_template_or_message_that_cannot_be_used_says_why(made, text, message, problem):
    """One line each; no template reaches beyond itself."""
    with pytest.raises(UsageError, match=problem.replace("|", r"\|")) as caught:
        template(made, text, **made.special).chat(message)
    assert "\n" not in str(caught.value)


def test_content_ids_are_kept_or_refused(made):
    """`chat_ids` gives the message's own tokens, and never others for the same text."""
    content = made.encode(f"{WORDS[0]} {WORDS[1]}")
    ids, (first, last) = made.chat_ids(content)
    assert ids[first:last] == content
    with pytest.raises(UsageError, match="whole words"):
        made.chat_ids([made.encode(letter)[0] for letter in WORDS[0]])
    with pytest.raises(UsageError, match="whole words"):
        template(made, "{{ messages[0].content }}" + WORDS[0][2:]).chat_ids(made.encode(WORDS[0][:2]))


def test_templates_see_what_they_see_elsewhere(made):
    """No tools, a fixed day, JSON as it is, the block that marks the model's words, thoughts where asked."""
    assert template(made, "{{ tools is none }}{{ documents is none }}").render([]) == "TrueTrue"
    assert template(made, "{{ strftime_now('%Y') }}").render([]) == str(DAY.year)
    assert template(made, "{{ ['ü', '<'] | tojson }}").render([]) == '["ü", "<"]'
    assert template(made, "a{% generation %}b{% endgeneration %}c").render([]) == "abc"
    thoughts = template(made, "{{ enable_thinking is defined and enable_thinking is false }}")
    assert thoughts.render([]) == "False"
    assert thoughts.render([], thinking=False) == "True"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("plain", "plain"),
        ([{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ({"default": "d", "tools": "t"}, "d"),
        ([{"name": "tools", "template": "t"}], None),
        ([], None),
        (None, None),
    ],
)
def test_of_several_templates_the_default_one_is_taken(folder, given, found):
    """Configurations hold one text, a list of named ones, or none."""
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": given}))
    assert Tokenizer.load(folder).template == found


def test_a_template_in_its_own_file_wins(folder):
    """chat_template.jinja before chat_template.json before tokenizer_config.json."""
    for name, content in (
        ("tokenizer_config.json", json.dumps({"chat_template": "c"})),
        ("chat_template.json", json.dumps({"chat_template": "b"})),
        ("chat_template.jinja", "a"),
    ):
        (folder / name).write_text(content)
        assert Tokenizer.load(folder).template == (
            content if content == "a" else json.loads(content)["chat_template"]
        )


def test_a_checkpoint_folder_gives_name_tokens_and_digest(folder, made, monkeypatch):
    """The same files, the same digest; the folder's name even from inside of it."""
    special = {"bos_token": {"content": "<|start|>"}, "eos_token": "<|end|>", "unk_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps({**special, "add_bos_token": True}))
    loaded = Tokenizer.load(folder)
    assert loaded.name == folder.name
    assert loaded.special == {"bos_token": "<|start|>", "eos_token": "<|end|>"}
    assert loaded.adds_start
    assert loaded.encode(" ".join(WORDS)) == made.encode(" ".join(WORDS))
    assert Tokenizer.load(folder / "tokenizer.json").digest == loaded.digest
    monkeypatch.chdir(folder)
    assert Tokenizer.load(".").name == folder.name


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", b"", "no tokenizer.json that can be read"),
        ("tokenizer.json", b'{"model": 3}', "no tokenizer.json that can be read"),
        ("tokenizer.json", b"\x80\x04K\x01.", "no tokenizer.json that can be read"),
        ("tokenizer_config.json", b"[1]", "holds no object"),
        ("tokenizer_config.json", b"{", "is not JSON"),
        ("tokenizer_config.json", b'{"chat_template": 3}', "the chat template in"),
        ("chat_template.jinja", b"\xff\xfe", "cannot be read"),
        ("chat_template.json", b'"text"', "holds no object"),
    ],
)
def test_a_damaged_file_is_one_line(folder, name, content, problem):
    """Nothing is half loaded."""
    (folder / name).write_bytes(content)
    with pytest.raises((UsageError, BrokenRecordError), match=problem) as caught:
        Tokenizer.load(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    """And says what to give."""
    with pytest.raises(UsageError, match=r"give a tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_words_are_tokens_with_a_blank_by_id(made):
    """Every made word is found, and nothing that has no blank or is no word."""
    found = dict(made.words())
    assert set(WORDS) <= set(found.values())
    assert list(found) == sorted(found)
    assert all(made.encode(f" {word}") == [token] for token, word in found.items())
    assert not list(made.words(capital=True))
    names = [word.title() for word in WORDS[:5]]
    assert set(names) <= {word for _, word in made_tokenizer(names).words(capital=True)}


def test_words_are_found_where_decoding_drops_the_first_blank():
    """A word is looked at behind another token."""
    tokenizer = Tokenizer(sentencepiece(), "pieces")
    assert tokenizer.decode(tokenizer.encode(f" {WORDS[0]}")) == WORDS[0]
    assert {word for _, word in tokenizer.words()} == set(WORDS)


def test_a_vocabulary_needs_enough_words(made):
    """Too few are refused by number; enough are split into three sets."""
    with pytest.raises(UsageError, match="576 are needed"):
        Tokenizer(sentencepiece(), "pieces").vocabulary()
    large = made_tokenizer(made_words(600)).vocabulary()
    assert (len(large.fillers), len(large.keys), len(large.values)) == (64, 256, 256)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AQAAAA=="}),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}),
    ],
)
def test_a_tokenizer_whose_code_panics_is_refused_in_one_line(folder, part, content) -> None:
    """When it is read, or at its first text; the library then raises what is no `Exception`."""
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: content}))
    with pytest.raises(UsageError, match=r"no tokenizer\.json that can be read") as refused:
        Tokenizer.load(folder)
    assert "\n" not in str(refused.value)
