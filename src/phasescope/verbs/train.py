"""Train a model as the command line says it, and write its card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..checkpoints.resolve import resolve
from ..errors import UnknownNameError, UsageError
from ..files import write_atomic
from ..records import Record
from ..running.runner import Report
from ..text.corpus import Corpus
from ..text.synthetic import RetrievalVocabulary
from ..text.tokens import Tokenizer
from .card import write_card
from .watch import watcher

if TYPE_CHECKING:
    from ..training import Progress, Text, Training

FULL = "none"
GRID = {"width": 8, "stride": 8}
FINE = {
    "muon": {"lr_matrices": 0.001, "lr_rest": 0.0002},
    "adamw": {"lr_matrices": 0.0002, "lr_rest": 0.0002},
}
"""Step sizes that are meant not to undo what a checkpoint has learned."""
MOST_KEYS = 100_000
RECORDS = ("rows", "queries", "first_pairs", "max_pairs", "promote")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")

Given = Mapping[str, Any]


class Inputs(Record):
    """What a run reads beside its settings: by name or folder, and never part of what decides it.

    Attributes:
        corpus: folder of the text.
        start: checkpoint to start from, a name or a folder.
    """

    corpus: Path | None = None
    start: str | None = None


def training_settings(
    inputs: Inputs,
    *,
    recipe: str | None = None,
    records: bool = True,
    compression: Given | None = None,
    text: Given | None = None,
    task: Given | None = None,
    **given: Any,
) -> Training:
    """The settings of a run from what is given of them; what is not given is the recipe's, or the default.

    Args:
        inputs: text, and weights to start from.
        recipe: NAME/ROW of `training.RECIPES`.
        records: whether there are records in the mixture.
        compression: fields of `Compression`; the compressor `none` is full attention.
        text: fields of `Text`.
        task: fields of `RetrievalTask`, and `keys`: how many keys, and values, records are drawn from.
        **given: fields of `Training`.

    Raises:
        UsageError: for settings that do not go together.
        UnknownNameError: for a recipe that is not known, listing what there is.
    """
    from ..training import Training, read_start

    corpus = None if inputs.corpus is None else Corpus.open(inputs.corpus)
    if corpus is None:
        _refuse([f"text_{name}" for name in text or {}], "says how to read text, and there is no --corpus")
    if not records:
        about_records = [*(name for name in RECORDS if name in given), *(task or {})]
        _refuse(about_records, "is about records, and --no-records leaves them out")
    read = None if corpus is None else _text(corpus, text or {})
    base = {} if recipe is None else _recipe(recipe, read).model_dump()
    if read is not None:
        base["text"] = {**(base.get("text") or read.model_dump()), **(text or {})}
    base["compression"] = _compression(base.get("compression"), compression or {})
    start = None if inputs.start is None else resolve(inputs.start).folder
    if start is not None:
        found = read_start(start)
        shape = found.shape()
        own = [name for name in (*shape, "embedding_std") if name in given]
        _refuse(own, "is the checkpoint's own")
        base |= {"start": found, **shape, **FINE[given.get("optimizer", base.get("optimizer", "muon"))]}
        _check_tokenizer(corpus, start)
    base["task"] = _task(base.get("task"), task or {}, read, start) if records else None
    return Training.checked(**{**base, **given})


def train(
    settings: Training,
    out: Path,
    inputs: Inputs,
    *,
    command: str,
    every: int = 100,
    watch_every: int = 0,
    tracker: str | None = None,
    parallel: Literal["ddp", "fsdp"] = "ddp",
    measured: bool = True,
    report: Callable[[Progress], None] = lambda progress: None,
    measuring: Report = lambda done, total: None,
) -> dict[str, Any] | None:
    """Train, keep the tokenizer beside the weights, and measure; an interrupted run goes on.

    Args:
        settings: what decides the run.
        out: folder of the run.
        inputs: text, and weights to start from.
        command: goes into the card.
        every: steps between checkpoints.
        watch_every: steps between two looks on the way; 0 for none.
        tracker: of accelerate, by name.
        parallel: how several processes hold the model.
        measured: whether the card says how the model reads and recalls.
        report: called after every step.
        measuring: called with the progress of the measurement at the end.

    Returns:
        the card; None in all processes but the one that writes.

    Raises:
        UsageError: for settings and inputs that do not go together, or another run in `out`.
    """
    from .. import training

    corpus = None if inputs.corpus is None else Corpus.open(inputs.corpus)
    start = None if inputs.start is None else resolve(inputs.start).folder
    training.train(
        settings,
        out,
        corpus=corpus,
        start=start,
        tracker=tracker,
        parallel=parallel,
        every=every,
        watch=watcher(settings, corpus) if watch_every else None,
        watch_every=watch_every,
        report=report,
    )
    if not training.is_main_process():
        return None
    for source in (inputs.corpus, start):
        _keep_tokenizer(source, out)
    return write_card(
        out, command=command, corpus=corpus, device=training.device(), measured=measured, report=measuring
    ).card


def train_anew(
    out: str | Path,
    *,
    corpus: str | Path | None = None,
    start: str | None = None,
    recipe: str | None = None,
    records: bool = True,
    compression: Given | None = None,
    text: Given | None = None,
    task: Given | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    measured: bool = True,
    **settings: Any,
) -> Any:
    """Train a Qwen3 with a compressed KV cache on records, on text, or on both; an interrupted run goes on.

    Args:
        out: folder of the run.
        corpus: folder of the text.
        start: checkpoint to start from, a name or a folder.
        recipe: NAME/ROW of `training.RECIPES`.
        records: whether there are records in the mixture.
        compression: fields of `Compression`.
        text: fields of `Text`.
        task: fields of `RetrievalTask`, and `keys`.
        report: called after every step.
        measured: whether the card says how the model reads and recalls.
        **settings: fields of `Training`.

    Returns:
        the card.

    Raises:
        UsageError: for settings that do not go together, or another run in `out`.
    """
    inputs = Inputs(corpus=None if corpus is None else Path(corpus), start=start)
    chosen = training_settings(
        inputs, recipe=recipe, records=records, compression=compression, text=text, task=task, **settings
    )
    return train(chosen, Path(out), inputs, command="phasescope.train", report=report, measured=measured)


def cost(
    settings: Training, *, processes: int = 1, accelerator: str | None = None, tracker: str | None = None
) -> list[str]:
    """What a run will take, in lines, before anything is trained; see `training.cost.plan`.

    Raises:
        UsageError: as `plan`, and for a tracker that the run would refuse.
    """
    from ..training.cost import plan
    from ..training.tracking import tracker_settings

    tracker_settings(tracker, Path())
    return plan(settings, processes=processes, accelerator=accelerator)


def _refuse(given: Iterable[str], why: str) -> None:
    """Refuse what was given, in the words of the command line."""
    if named := ", ".join(f"--{name.replace('_', '-')}" for name in given):
        raise UsageError(f"{named} {why}; leave it out")


def _text(corpus: Corpus, text: Given) -> Text:
    from ..training import Text

    try:
        found = Text.checked(corpus=corpus.facts.digest, vocabulary=corpus.facts.vocabulary, **text)
    except UsageError as error:
        raise UsageError(f"text {error}") from None
    corpus.check(found.tokens)
    return found


def _recipe(name: str, text: Text | None) -> Training:
    from ..training import RECIPES

    recipe, _, row = name.partition("/")
    if recipe not in RECIPES:
        raise UnknownNameError(f"unknown recipe {recipe!r}; known: {', '.join(sorted(RECIPES))}")
    rows = RECIPES[recipe](text)
    if row not in rows:
        raise UnknownNameError(
            f"recipe {recipe} has no row {row!r}; it has {', '.join(rows)}; give {recipe}/ROW"
        )
    return rows[row]


def _compression(base: Given | None, given: Given) -> dict[str, Any] | None:
    """The recipe's compression, or the default grid, with what is given of it."""
    name = given.get("compressor")
    if name == FULL or (name is None and base is None):
        if named := ", ".join(f"--{field.removesuffix('s')}" for field in given if field != "compressor"):
            raise UsageError(
                f"{named} says how to compress, and there is no --compressor; name one, or leave it out"
            )
        return None
    return {**GRID, **(base or {}), **given}


def _task(base: Given | None, given: Given, text: Text | None, start: Path | None) -> dict[str, Any]:
    """The recipe's sequences of records, or the default ones, on ids that belong to no text.

    A checkpoint to start from has words of its own for them.
    """
    from ..training import RetrievalTask

    task = RetrievalTask().model_dump() if base is None else dict(base)
    vocabulary = task["vocabulary"]
    if start is not None:
        from ..backends.transformers.load import folder_vocabulary

        _refuse(["keys"] if "keys" in given else [], "is the checkpoint's own")
        vocabulary = folder_vocabulary(start).model_dump()
    elif base is None or "keys" in given:
        first = 0 if text is None else text.vocabulary
        keys = given.get("keys", len(vocabulary["keys"]))
        if not 1 <= keys <= MOST_KEYS:
            raise UsageError(f"keys is {keys}; give 1 to {MOST_KEYS:,}")
        vocabulary = RetrievalVocabulary.contiguous(len(vocabulary["fillers"]), keys, keys, first)
    said = {name: value for name, value in given.items() if name != "keys"}
    return {**task, **said, "vocabulary": vocabulary}


def _check_tokenizer(corpus: Corpus | None, start: Path) -> None:
    """Text must be split as the checkpoint has learned it."""
    if corpus is None or not (start / "tokenizer.json").is_file():
        return  # a checkpoint without a tokenizer has at least a number of ids, which is checked
    theirs, own = Tokenizer.load(corpus.folder), Tokenizer.load(start)
    if theirs.fast.to_str() != own.fast.to_str():
        raise UsageError(
            f"{corpus.folder} was split by another tokenizer than that of {start}; build a corpus with "
            f"--tokenizer {start}"
        )


def _keep_tokenizer(source: Path | None, out: Path) -> None:
    """What reads text for the trained model, beside it."""
    for name in TOKENIZER_FILES:
        if source is not None and (source / name).is_file():
            write_atomic(out / name, (source / name).read_bytes())
