"""A corpus is plain tokenisation, split by the text of each document alone."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope import BrokenRecordError, UsageError
from phasescope.text import corpus as corpora
from phasescope.text.corpus import Corpus, build, learn
from phasescope.text.tokens import Tokenizer

WORDS = made_words(300)


def documents(count, seed=0):
    """Texts of 5 to 40 made-up words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(5, 40))) for _ in range(count)]


def stored(corpus, part):
    return np.fromfile(corpus.folder / f"{part}.bin", corpus.facts.dtype).astype(int).tolist()


def split(ids, end):
    """Documents again, without their ends."""
    cuts = [-1, *np.flatnonzero(np.array(ids) == end)]
    return [ids[a + 1 : b] for a, b in pairwise(cuts)]


def test_a_corpus_is_what_plain_tokenisation_gives(tmp_path):
    """Every document once, in order, between ends; tokens, documents and bytes are counted."""
    tokenizer, texts = made_tokenizer(WORDS), documents(80)
    told = []
    corpus = build([*texts, texts[3], ""], tokenizer, tmp_path / "c", held_out=0.2, report=told.append)
    parts = {part: split(stored(corpus, part), corpus.facts.end) for part in ("train", "held_out")}
    assert sorted(parts["train"] + parts["held_out"]) == sorted(map(tokenizer.encode, texts))
    order = [tokenizer.encode(text) for text in texts]
    assert [ids for ids in order if ids in parts["train"]] == parts["train"]
    facts = corpus.facts
    assert facts.documents == {part: len(found) for part, found in parts.items()}
    assert facts.tokens == {part: len(stored(corpus, part)) for part in parts}
    for part, found in parts.items():
        assert facts.bytes[part] == sum(len(tokenizer.decode(ids).encode()) for ids in found)
    assert told[-1] == sum(facts.tokens.values())
    assert 5 <= facts.documents["held_out"] <= 30
    assert Tokenizer.load(corpus.folder).digest == facts.tokenizer == tokenizer.digest


def test_what_is_held_out_depends_on_no_order_and_on_no_other_text(tmp_path):
    """Shuffled, and with more text around it, the same documents are held out."""
    tokenizer, texts = made_tokenizer(WORDS), documents(60)
    shuffled = [*documents(60, seed=1), *np.random.default_rng(0).permutation(texts).tolist()]
    one, two = (
        build(given, tokenizer, tmp_path / str(len(given)), held_out=0.3) for given in (texts, shuffled)
    )
    known = [tokenizer.encode(text) for text in texts]
    held = [[ids for ids in split(stored(c, "held_out"), c.facts.end) if ids in known] for c in (one, two)]
    assert sorted(held[0]) == sorted(held[1])
    assert one.facts.digest != two.facts.digest


def test_batches_and_rebuilding_change_no_byte(tmp_path, monkeypatch):
    """How many documents are tokenised at once is no part of the corpus."""
    tokenizer, texts = made_tokenizer(WORDS), documents(40)
    one = build(texts, tokenizer, tmp_path / "one", held_out=0.2)
    monkeypatch.setattr(corpora, "DOCUMENTS_AT_ONCE", 3)
    monkeypatch.setattr(corpora, "CHARACTERS_AT_ONCE", 200)
    two = build(iter(texts), tokenizer, tmp_path / "two", held_out=0.2)
    assert one.facts == two.facts
    assert stored(one, "train") == stored(two, "train")


def test_it_stops_after_the_document_that_reaches_the_tokens(tmp_path):
    """Not a batch later."""
    tokenizer, texts = made_tokenizer(WORDS), documents(200)
    corpus = build(texts, tokenizer, tmp_path / "c", held_out=0.2, most_tokens=500)
    total = sum(corpus.facts.tokens.values())
    lengths = [len(tokenizer.encode(text)) + 1 for text in texts[: sum(corpus.facts.documents.values())]]
    assert total == sum(lengths) >= 500 > total - lengths[-1]


def test_windows_are_stretches_of_the_text_and_spread_ones_do_not_overlap(tmp_path):
    """Drawn ones follow the generator; spread ones begin and end with the part."""
    corpus = build(documents(80), made_tokenizer(WORDS), tmp_path / "c", held_out=0.2)
    ids = stored(corpus, "train")
    drawn = corpus.windows("train", 6, 20, np.random.default_rng(1))
    assert np.array_equal(drawn, corpus.windows("train", 6, 20, np.random.default_rng(1)))
    text = " ".join(map(str, ids))
    assert all(" ".join(map(str, row)) in text for row in drawn)
    spread = corpus.spread("train", 9, 20)
    starts = [next(i for i in range(len(ids)) if ids[i : i + 20] == row.tolist()) for row in spread]
    assert (starts[0], starts[-1]) == (0, len(ids) - 20)
    assert min(np.diff(starts)) >= 20
    assert len(corpus.spread("train", 10**6, 20)) == len(ids) // 20
    assert len(corpus.spread("train", 1, len(ids))) == 1


def test_windows_longer_than_the_text_are_refused(tmp_path):
    """Before anything is trained, and for the part that is held out, too."""
    corpus = build(documents(80), made_tokenizer(WORDS), tmp_path / "c", held_out=0.2)
    longest = corpus.facts.tokens["held_out"]
    corpus.check(longest)
    with pytest.raises(UsageError, match=f"has {longest} tokens in held_out.bin, fewer than a window of"):
        corpus.check(longest + 1)
    with pytest.raises(UsageError, match=r"tokens in train\.bin"):
        corpus.windows("train", 1, 10**6, np.random.default_rng(0))


def test_ids_that_the_tokenizer_does_not_have_are_refused(tmp_path):
    """A damaged byte can name any id; the file is named."""
    corpus = build(documents(80), made_tokenizer(WORDS), tmp_path / "c", held_out=0.2)
    path = corpus.folder / "train.bin"
    path.write_bytes(b"\xff\xff" + path.read_bytes()[2:])
    with pytest.raises(BrokenRecordError, match=r"train\.bin holds id 65535"):
        Corpus.open(corpus.folder).spread("train", 5, 20)


def test_a_learned_tokenizer_spells_every_text(tmp_path):
    """It has the size that was asked for, every byte, and an end of text that a reader finds."""
    texts = documents(60)
    corpus = build(texts, 300, tmp_path / "c", held_out=0.2)
    tokenizer = Tokenizer.load(corpus.folder)
    assert corpus.facts.vocabulary == tokenizer.size == 300
    assert tokenizer.decode([corpus.facts.end]) == "<|endoftext|>" == tokenizer.special["eos_token"]
    assert corpus.facts.end in tokenizer.special_ids
    odd = "Ünïcödé \N{SNOWMAN}\n"
    assert tokenizer.decode(tokenizer.encode(odd)) == odd
    assert learn(texts, 300).digest == corpus.facts.tokenizer == tokenizer.digest


def test_ids_take_four_bytes_where_two_do_not_suffice(tmp_path, monkeypatch):
    """Same tokens, other storage."""
    tokenizer, texts = made_tokenizer(WORDS), documents(40)
    small = build(texts, tokenizer, tmp_path / "small", held_out=0.2)
    monkeypatch.setattr(corpora, "SPLIT", 10)
    large = build(texts, tokenizer, tmp_path / "large", held_out=0.2)
    assert (small.facts.dtype, large.facts.dtype) == ("<u2", "<u4")
    assert stored(small, "train") == stored(large, "train")


def test_a_build_that_breaks_off_leaves_nothing_that_passes_for_a_corpus(tmp_path):
    """Neither an error nor a kill; the next build clears up what a kill leaves."""
    tokenizer, texts = made_tokenizer(WORDS), documents(40)

    def broken():
        yield from texts
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        build(broken(), tokenizer, tmp_path / "c", held_out=0.2)
    assert [path.name for path in (tmp_path / "c").iterdir()] == [".lock"]
    (tmp_path / "c" / ".part").mkdir()
    (tmp_path / "c" / ".part" / "train.bin").write_bytes(b"half")
    with pytest.raises(UsageError, match="no corpus at"):
        Corpus.open(tmp_path / "c")
    corpus = build(texts, tokenizer, tmp_path / "c", held_out=0.2)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert not (tmp_path / "c" / ".part").exists()
    (corpus.folder / "train.bin").write_bytes(b"half")
    with pytest.raises(BrokenRecordError, match=r"train\.bin is not as long as"):
        Corpus.open(tmp_path / "c")


def test_what_cannot_be_built_is_one_line(tmp_path):
    """Before the text is read, where that is possible."""

    def never():
        raise AssertionError("nothing must be read")
        yield

    tokenizer = made_tokenizer(WORDS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds files; name a folder"):
        build(never(), tokenizer, tmp_path / "full")
    with pytest.raises(UsageError, match="is a file"):
        build(never(), tokenizer, tmp_path / "full" / "notes.txt")
    with pytest.raises(UsageError, match="cannot spell every byte; give at least 257"):
        build(never(), 256, tmp_path / "c")
    for share in (0.0, 1.0, -1.0):
        with pytest.raises(UsageError, match="give a share between 0 and 1"):
            build(never(), tokenizer, tmp_path / "c", held_out=share)
    with pytest.raises(UsageError, match="most_tokens is 0"):
        build(never(), tokenizer, tmp_path / "c", most_tokens=0)
    with pytest.raises(UsageError, match="made names no end of text: put an eos_token"):
        build(never(), Tokenizer(tokenizer.fast, "made"), tmp_path / "c")
    with pytest.raises(UsageError, match="no text for held_out: 1 different documents were read"):
        build(documents(1, seed=3) * 5, tokenizer, tmp_path / "c")
    with pytest.raises(UsageError, match="no text for train and held_out: 0 different documents"):
        build([], tokenizer, tmp_path / "c")
    build(documents(40), tokenizer, tmp_path / "c", held_out=0.2)
    with pytest.raises(UsageError, match="holds a corpus already"):
        build(never(), tokenizer, tmp_path / "c")
    (tmp_path / "c" / "corpus.json").write_text("[]")
    with pytest.raises(BrokenRecordError, match=r"corpus\.json is damaged"):
        Corpus.open(tmp_path / "c")


def test_of_builds_that_race_for_a_folder_one_makes_the_corpus(tmp_path):
    """The others are told so in one line, whichever comes first, and destroy nothing."""
    tokenizer = made_tokenizer(WORDS)
    told, start = [], threading.Barrier(3)

    def race(folder, texts):
        start.wait()
        try:
            build(texts, tokenizer, folder, held_out=0.2)
        except UsageError as error:
            told.append(str(error))

    for number in range(10):
        folder = tmp_path / str(number)
        racers = [threading.Thread(target=race, args=(folder, documents(40 + n))) for n in range(3)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert Corpus.open(folder).facts.tokens["train"] > 0
        assert len(told) == 2 * (number + 1)
    known = ("is being written by another", "holds a corpus already", "holds files")
    assert all(any(words in said for words in known) for said in told)
