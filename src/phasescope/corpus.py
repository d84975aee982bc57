"""Text as one long row of token ids on disk: built once from any source, then read by position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from .errors import BrokenRecordError, MissingExtraError, UsageError
from .records import Record, dump_json, read_json, write_atomic
from .tokens import Tokenizer

END = "<|endoftext|>"
TOKENIZED_AT_ONCE = 256  # documents
PARTS = ("train", "held_out")
SPLIT = 1 << 16

Ids = npt.NDArray[np.int64]
Report = Callable[[int], None]


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

    tokens: dict[str, int]
    documents: dict[str, int]
    bytes: dict[str, int]
    vocabulary: int
    end: int
    dtype: str
    tokenizer: str
    digest: str


@dataclass(frozen=True)
class Corpus:
    """A folder that `build` wrote: `train.bin`, `held_out.bin`, `corpus.json`, and the tokenizer."""

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
            raise UsageError(f"no corpus at {folder}; make one with: phasescope corpus {folder} --text FOLDER")
        corpus = cls(folder, Facts.checked(**read_json(folder / "corpus.json")))
        for part in PARTS:
            path, size = folder / f"{part}.bin", np.dtype(corpus.facts.dtype).itemsize
            if not path.is_file() or path.stat().st_size != corpus.facts.tokens[part] * size:
                raise BrokenRecordError(f"{path} is not as long as corpus.json says; build the corpus again")
        return corpus

    def windows(self, part: str, rows: int, tokens: int, rng: np.random.Generator) -> Ids:
        """Windows that start anywhere, [rows, tokens]."""
        ids = self._ids[part]
        self._check(part, tokens)
        starts = rng.integers(0, len(ids) - tokens + 1, size=rows)
        return np.stack([ids[start : start + tokens] for start in starts]).astype(np.int64)

    def spread(self, part: str, rows: int, tokens: int) -> Ids:
        """The same windows every time, evenly over the part and without overlap, [at most rows, tokens]."""
        ids = self._ids[part]
        self._check(part, tokens)
        rows = min(rows, len(ids) // tokens)
        starts = np.linspace(0, len(ids) - tokens, rows).astype(int)
        return np.stack([ids[start : start + tokens] for start in starts]).astype(np.int64)

    def _check(self, part: str, tokens: int) -> None:
        if (held := self.facts.tokens[part]) < tokens:
            raise UsageError(
                f"{self.folder} has {held} tokens of {part} text, fewer than a window of {tokens}; give more text"
            )

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
    learn_from: int = 20_000,
    report: Report = lambda tokens: None,
) -> Corpus:
    """Tokenise and pack documents; each ends with the tokenizer's end-of-text token.

    Whether a document is held out depends on nothing but its own text, so that no order, and no text added
    later, moves a document from one part to the other; a text that occurs twice is kept once. The two files are
    written beside their place and moved there when they are whole.

    Args:
        documents: streamed; only a tokenizer that is to be learned keeps its first ones.
        tokenizer: what splits the text, or how many tokens a byte-level BPE learned from it shall have.
        out: a folder without a corpus.
        held_out: share of the documents that training never sees.
        most_tokens: stop after the document that reaches this many.
        learn_from: documents from which a tokenizer is learned.
        report: told the tokens so far.

    Raises:
        UsageError: if `out` holds a corpus, or there is no text.
    """
    if (out / "corpus.json").exists():
        raise UsageError(f"{out} holds a corpus already; use another folder")
    if not 0 < held_out < 1:
        raise UsageError(f"held_out is {held_out}; give a share between 0 and 1")
    texts = iter(documents)
    if isinstance(tokenizer, int):
        first = list(islice(texts, learn_from))
        tokenizer, texts = learn(first, tokenizer), chain(first, texts)
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "tokenizer.json", tokenizer.fast.to_str())
    facts = _pack(texts, tokenizer, out, held_out, most_tokens, report)
    if empty := [part for part in PARTS if not facts.tokens[part]]:
        raise UsageError(
            f"no text for {' and '.join(empty)}: {sum(facts.documents.values())} documents were read; give more"
        )
    for part in PARTS:
        (out / f".{part}.part").replace(out / f"{part}.bin")
    write_atomic(out / "corpus.json", dump_json(facts.model_dump(mode="json")))
    return Corpus.open(out)


def learn(texts: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of `size` tokens, the end of text among them.

    Raises:
        UsageError: for fewer tokens than there are bytes.
    """
    if size < (least := 257):
        raise UsageError(f"a tokenizer of {size} tokens cannot spell every byte; give at least {least}")
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator(texts, trainer)
    return Tokenizer(fast, f"bpe-{size}")


def read_documents(paths: Iterable[Path], suffixes: Iterable[str] = ()) -> Iterator[str]:
    """Documents of files and folders, in the order of their names.

    A line of a `.jsonl` file is a document (its field `text`), as is a row of a `.parquet` file (its column
    `text`); any other file is one document. Files that are no UTF-8 are passed over.

    Args:
        paths: files, or folders that are searched to the bottom.
        suffixes: take only files of a folder with these endings; all by default.

    Raises:
        UsageError: if a path does not exist, or a record has no text.
    """
    wanted = {f".{suffix.lstrip('.')}" for suffix in suffixes}
    for path in paths:
        if not path.exists():
            raise UsageError(f"no text at {path}: there is no such file or folder")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            if path.is_dir() and wanted and file.suffix not in wanted:
                continue
            yield from _documents_of(file)


def dataset_documents(name: str, *, config: str | None, split: str, column: str) -> Iterator[str]:
    """Documents of a data set of the `datasets` library, by name or folder, streamed.

    Raises:
        MissingExtraError: if `datasets` is not installed.
        UsageError: if it cannot be read, or has no such column.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingExtraError(
            "this needs datasets, which the base install leaves out; install it with: pip install 'phasescope[text]'"
        ) from None
    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        for row in rows:
            if not isinstance(row.get(column), str):
                raise UsageError(
                    f"{name} has no text in column {column!r}; it has {', '.join(sorted(row))}; give --column"
                )
            yield row[column]
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UsageError(f"data set {name!r} cannot be read: {str(error).splitlines()[0]}") from None


def _documents_of(file: Path) -> Iterator[str]:
    if file.suffix == ".parquet":
        import pyarrow.parquet as parquet

        for batch in parquet.ParquetFile(file).iter_batches(columns=["text"]):
            yield from batch.column("text").to_pylist()
        return
    try:
        if file.suffix != ".jsonl":
            yield file.read_text(encoding="utf-8")
            return
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _text_of(line, f"{file}, line {number}")
    except UnicodeDecodeError:
        return


def _text_of(line: str, where: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise UsageError(f'{where}: each line is an object with a field "text"')
    return text


def _pack(
    texts: Iterator[str],
    tokenizer: Tokenizer,
    out: Path,
    held_out: float,
    most_tokens: int | None,
    report: Report,
) -> Facts:
    """Write the ids of both parts beside their places."""
    dtype = np.dtype("<u2" if tokenizer.size <= SPLIT else "<u4")
    end = _end_of(tokenizer)
    counts = {name: dict.fromkeys(PARTS, 0) for name in ("tokens", "documents", "bytes")}
    sums = {part: hashlib.sha256() for part in PARTS}
    seen: set[bytes] = set()
    files = {part: (out / f".{part}.part").open("wb") for part in PARTS}
    try:
        while fresh := list(islice(texts, TOKENIZED_AT_ONCE)):
            for text, ids in zip(fresh, tokenizer.encode_many(fresh), strict=True):
                name = hashlib.sha256(text.encode()).digest()
                if not ids or name in seen:
                    continue
                seen.add(name)
                part = PARTS[int.from_bytes(name[:8], "big") < held_out * 2**64]
                packed = np.array([*ids, end], dtype).tobytes()
                files[part].write(packed)
                sums[part].update(packed)
                for what, count in (("tokens", len(ids) + 1), ("documents", 1), ("bytes", len(text.encode()))):
                    counts[what][part] += count
            total = sum(counts["tokens"].values())
            report(total)
            if most_tokens is not None and total >= most_tokens:
                break
    finally:
        for file in files.values():
            file.close()
    return Facts(
        **counts,
        vocabulary=tokenizer.size,
        end=end,
        dtype=dtype.str,
        tokenizer=tokenizer.digest,
        digest=hashlib.sha256(b"".join(sums[part].digest() for part in PARTS)).hexdigest(),
    )


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
