"""`phasescope corpus`: text as token ids on disk, for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..text.corpus import build
from ..text.documents import dataset_documents, read_documents, text_files
from ..text.tokens import Tokenizer
from .progress import bar
from .terminal import say


def corpus(
    out: Annotated[Path, typer.Argument(help="Folder of the corpus: empty, or not there yet.")],
    text: Annotated[
        list[Path] | None,
        typer.Option(help="A text file, .jsonl or .parquet, or a folder of them; may be repeated."),
    ] = None,
    suffix: Annotated[
        list[str] | None,
        typer.Option(help="Take only files of folders with this ending; may be repeated."),
    ] = None,
    cut: Annotated[
        int | None,
        typer.Option(help="Cut text files into documents of so many characters; else each is one.", min=1),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Instead: a data set of the datasets library, by name or folder.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration of the data set.")] = None,
    split: Annotated[str, typer.Option(help="Split of the data set.")] = "train",
    column: Annotated[str, typer.Option(help="The field or column that holds the text.")] = "text",
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json, or the folder of a checkpoint.")
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Instead: learn a byte-level BPE of so many tokens from the text.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of the documents that training never sees.")] = 0.02,
    tokens: Annotated[
        int | None, typer.Option(help="Stop at so many tokens; else at the end of the text.", min=1)
    ] = None,
) -> None:
    """Tokenise text once and pack it, a part of the documents held out, for `phasescope train --corpus`."""
    if (tokenizer is None) == (vocabulary is None):
        raise UsageError(
            "give either --tokenizer, a folder with a tokenizer.json, or --vocabulary, the size of one to be learned"
        )
    if (dataset is None) == (not text):
        raise UsageError("give either --text, files and folders, or --dataset, a name or folder of datasets")
    splits = Tokenizer.load(tokenizer) if tokenizer is not None else vocabulary or 0
    skipped: list[Path] = []
    with bar() as progress:
        task = progress.add_task("reading", total=tokens, note="")
        if dataset is not None:
            documents = dataset_documents(dataset, config=config, split=split, column=column)
        else:
            size = sum(file.stat().st_size for file in text_files(text or (), suffix or ()))
            if tokens is None:
                progress.update(task, description="bytes", total=size)
            documents = read_documents(
                text or (),
                suffix or (),
                column=column,
                cut=cut,
                read=lambda read: progress.advance(task, read) if tokens is None else None,
                skipped=skipped.append,
            )
        made = build(
            documents,
            splits,
            out,
            held_out=held_out,
            most_tokens=tokens,
            report=lambda done: progress.update(
                task, note=f"{done:,} tokens", completed=None if tokens is None else done
            ),
        )
    facts = made.facts
    say(
        f"{out}: {facts.tokens['train']:,} tokens in {facts.documents['train']:,} documents; held out "
        f"{facts.tokens['held_out']:,} in {facts.documents['held_out']:,}; vocabulary {facts.vocabulary:,}"
        + (f"; {len(skipped):,} files skipped, which are not valid UTF-8" if skipped else "")
    )
