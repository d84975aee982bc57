"""Text as one long row of token ids on disk: built once from any source, then read by position."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from ..errors import BrokenRecordError, UsageError
from ..files import LOCK, alone, dump_json, read_record, write_atomic
from ..records import Record
from .tokens import Tokenizer

END = "<|endoftext|>"
LEAST = 257  # every byte, and the end of text
LEARN_DOCUMENTS, LEARN_CHARACTERS = 20_000, 200_000_000
DOCUMENTS_AT_ONCE, CHARACTERS_AT_ONCE = 256, 4_000_000  # are tokenised together
PARTS = ("train", "held_out")
UNFINISHED = ".part"
SPLIT = 1 << 16

Ids = npt.NDArray[np.int64]
Report = Callable[[int], None]
Count = Annotated[int, Field(ge=0)]


class Facts(Record):
    """What a corpus holds.

    Attributes:
        tokens: tokens of the two parts, `train` and `held_out`.
        documents: documents of the two parts.
        bytes: UTF-8 bytes of the two parts' text, without the ends of documents; nats per token times tokens over
            bytes compares models of different tokenizers.
        vocabulary: ids lie below this number.
        end: the id that ends every document.
        dtype: how an id is stored, little-endian.
        tokenizer: digest of the tokenizer.
        digest: SHA-256 of all ids.
    """

    tokens: dict[str, Count]
    documents: dict[str, Count]
    bytes: dict[str, Count]
    vocabulary: int = Field(ge=1, le=2**24)
    end: int = Field(ge=0, lt=2**24)
    dtype: Literal["<u2", "<u4"]
    tokenizer: str
    digest: str

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if any(set(counts) != set(PARTS) for counts in (self.tokens, self.documents, self.bytes)):
            raise ValueError(f"tokens, documents and bytes are counted for {' and '.join(PARTS)}")
        return self


@dataclass(frozen=True)
class Corpus:
    """A folder that `build` wrote: `train.bin`, `held_out.bin`, `corpus.json`, and the tokenizer's files."""

    folder: Path
    facts: Facts

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a corpus without reading its text.

        Raises:
            UsageError: if the folder holds none.
            BrokenRecordError: if it was cut short.
        """
        if not (folder / "corpus.json").is_file():
            raise UsageError(
                f"no corpus at {folder}; make one with: phasescope corpus {folder} --text FOLDER"
            )
        corpus = cls(folder, read_record(folder / "corpus.json", Facts))
        for part in PARTS:
            path, size = folder / f"{part}.bin", np.dtype(corpus.facts.dtype).itemsize
            if not path.is_file() or path.stat().st_size != corpus.facts.tokens[part] * size:
                raise BrokenRecordError(f"{path} is not as long as corpus.json says; build the corpus again")
        return corpus

    def windows(self, part: str, rows: int, tokens: int, rng: np.random.Generator) -> Ids:
        """Windows that start anywhere, [rows, tokens]."""
        self._check(part, tokens)
        return self._cut(part, rng.integers(0, len(self._ids[part]) - tokens + 1, size=rows), tokens)

    def spread(self, part: str, rows: int, tokens: int) -> Ids:
        """The same windows every time, evenly over the part and without overlap, [at most rows, tokens]."""
        self._check(part, tokens)
        length = len(self._ids[part])
        rows = min(rows, length // tokens)
        return self._cut(part, np.arange(rows) * (length - tokens) // max(1, rows - 1), tokens)

    def verify(self) -> None:
        """Read all of the text once, to see that it is what was built; a GB takes about a second.

        Raises:
            BrokenRecordError: if a byte has changed.
        """
        if _digest(self.folder) != self.facts.digest:
            raise BrokenRecordError(
                f"{self.folder} holds other tokens than corpus.json was written for; build the corpus again"
            )

    def check(self, tokens: int) -> None:
        """Refuse windows that are longer than a part.

        Raises:
            UsageError: saying how much text there is.
        """
        for part in PARTS:
            self._check(part, tokens)

    def _check(self, part: str, tokens: int) -> None:
        if (held := self.facts.tokens[part]) < tokens:
            raise UsageError(
                f"{self.folder} has {held} tokens in {part}.bin, fewer than a window of {tokens}; build it of more "
                "text, or take shorter windows"
            )

    def _cut(self, part: str, starts: Ids, tokens: int) -> Ids:
        ids = np.stack([self._ids[part][start : start + tokens] for start in starts])
        if (largest := int(ids.max(initial=0))) >= self.facts.vocabulary:
            raise BrokenRecordError(
                f"{self.folder / part}.bin holds id {largest}, and corpus.json allows {self.facts.vocabulary} ids; "
                "build the corpus again"
            )
        return ids.astype(np.int64)

    @cached_property
    def _ids(self) -> dict[str, npt.NDArray[np.unsignedinteger[Any]]]:
        return {
            part: np.memmap(self.folder / f"{part}.bin", dtype=self.facts.dtype, mode="r")
            if self.facts.tokens[part]
            else np.empty(0, self.facts.dtype)
            for part in PARTS
        }


def build(
    documents: Iterable[str],
    tokenizer: Tokenizer | int,
    out: Path,
    *,
    held_out: float = 0.02,
    most_tokens: int | None = None,
    report: Report = lambda tokens: None,
) -> Corpus:
    """Tokenise and pack documents; each ends with the tokenizer's end-of-text token.

    Whether a document is held out depends on nothing but its own text, so that no order, and no text added
    later, moves a document from one part to the other; a text that occurs twice is kept once. Everything is
    written within `out` by one process at a time, and is a corpus from the moment that it is whole. Only the
    digests of the documents seen so far, 32 bytes each, take memory that grows with the text.

    Args:
        documents: streamed, once.
        tokenizer: what splits the text, or how many tokens a byte-level BPE shall have that is learned from the
            first `LEARN_DOCUMENTS` documents, or `LEARN_CHARACTERS` where that is less; they are kept in memory.
        out: a folder that is empty or does not exist.
        held_out: share of the documents that training never sees.
        most_tokens: stop after the document that reaches this many.
        report: called with the tokens so far.

    Raises:
        UsageError: if `out` holds files or is being written, a number is out of range, or there is too little text.
    """
    _check_place(out)
    if not 0 < held_out < 1:
        raise UsageError(f"held_out is {held_out}; give a share between 0 and 1")
    if most_tokens is not None and most_tokens < 1:
        raise UsageError(f"most_tokens is {most_tokens}; give at least 1")
    if isinstance(tokenizer, int):
        _check_size(tokenizer)
    texts = iter(documents)
    with alone(out), _unfinished(out) as part:
        if isinstance(tokenizer, int):
            first = next(_batches(texts, LEARN_DOCUMENTS, LEARN_CHARACTERS), [])
            tokenizer, texts = learn(first, tokenizer), chain(first, texts)
        facts = _pack(texts, tokenizer, part, held_out, most_tokens, report)
        if empty := [name for name in PARTS if not facts.tokens[name]]:
            raise UsageError(
                f"no text for {' and '.join(empty)}: {sum(facts.documents.values())} different documents were read; "
                "give more, cut long ones, or hold out another share"
            )
        _save_tokenizer(tokenizer, part)
        for file in part.iterdir():
            file.replace(out / file.name)
        # Last, because a folder with it is a corpus.
        write_atomic(out / "corpus.json", dump_json(facts.model_dump(mode="json")))
    return Corpus.open(out)


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """A folder within `out`, which this process has to itself, for what is not whole yet."""
    _check_place(out)  # another process may have finished meanwhile
    part = out / UNFINISHED
    shutil.rmtree(part, ignore_errors=True)  # what a kill left
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def learn(texts: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of `size` tokens, the end of text among them; fewer where the text is too short.

    Raises:
        UsageError: for fewer tokens than there are bytes.
    """
    _check_size(size)
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator(texts, trainer)
    return Tokenizer(fast, f"bpe-{size}", special={"eos_token": END})


def _check_place(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder that is not there yet")
    if (out / "corpus.json").exists():
        raise UsageError(f"{out} holds a corpus already; use another folder")
    if out.is_dir() and any(file.name not in (LOCK, UNFINISHED) for file in out.iterdir()):
        raise UsageError(f"{out} holds files; name a folder that is empty or not there yet")


def _check_size(size: int) -> None:
    if size < LEAST:
        raise UsageError(f"a tokenizer of {size} tokens cannot spell every byte; give at least {LEAST}")


def _batches(
    texts: Iterator[str],
    documents: int = DOCUMENTS_AT_ONCE,
    characters: int = CHARACTERS_AT_ONCE,
) -> Iterator[list[str]]:
    """Documents in their order, at most so many at once, and no further one beyond so many characters."""
    batch: list[str] = []
    length = 0
    for text in texts:
        batch.append(text)
        length += len(text)
        if len(batch) == documents or length >= characters:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _pack(
    texts: Iterator[str],
    tokenizer: Tokenizer,
    folder: Path,
    held_out: float,
    most_tokens: int | None,
    report: Report,
) -> Facts:
    """Write the ids of both parts."""
    dtype = np.dtype("<u2" if tokenizer.size <= SPLIT else "<u4")
    end = _end_of(tokenizer)
    counts = {name: dict.fromkeys(PARTS, 0) for name in ("tokens", "documents", "bytes")}
    seen: set[bytes] = set()
    with ExitStack() as stack:
        files = {part: stack.enter_context((folder / f"{part}.bin").open("wb")) for part in PARTS}
        for batch in _batches(texts):
            for text, ids in zip(batch, tokenizer.encode_many(batch), strict=True):
                content = text.encode()
                name = hashlib.sha256(content).digest()
                if not ids or name in seen or (most_tokens and sum(counts["tokens"].values()) >= most_tokens):
                    continue
                seen.add(name)
                part = PARTS[int.from_bytes(name[:8], "big") < held_out * 2**64]
                files[part].write(np.array([*ids, end], dtype).tobytes())
                for what, count in (("tokens", len(ids) + 1), ("documents", 1), ("bytes", len(content))):
                    counts[what][part] += count
            report(total := sum(counts["tokens"].values()))
            if most_tokens and total >= most_tokens:
                break
    return Facts(
        **counts,
        vocabulary=tokenizer.size,
        end=end,
        dtype="<u2" if dtype.itemsize == 2 else "<u4",
        tokenizer=tokenizer.digest,
        digest=_digest(folder),
    )


def _digest(folder: Path) -> str:
    """SHA-256 of the SHA-256 of each part's ids."""
    sums = hashlib.sha256()
    for part in PARTS:
        with (folder / f"{part}.bin").open("rb") as file:
            sums.update(hashlib.file_digest(file, "sha256").digest())
    return sums.hexdigest()


def _end_of(tokenizer: Tokenizer) -> int:
    """The id that ends a text: the checkpoint's own, or the usual names of one."""
    names = [tokenizer.special.get("eos_token"), END, "</s>", "<|end_of_text|>"]
    for name in names:
        found = None if name is None else tokenizer.fast.token_to_id(name)
        if found is not None:
            return found
    raise UsageError(
        f"tokenizer {tokenizer.name} names no end of text: put an eos_token into the tokenizer_config.json beside it"
    )


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """As a checkpoint has it, so that `Tokenizer.load` reads the same one."""
    settings = {**tokenizer.special, **({"add_bos_token": True} if tokenizer.adds_start else {})}
    write_atomic(folder / "tokenizer.json", tokenizer.fast.to_str())
    write_atomic(folder / "tokenizer_config.json", dump_json(settings))
    if tokenizer.template is not None:
        write_atomic(folder / "chat_template.jinja", tokenizer.template)
