"""A user's prompts: texts from files, or lines of JSON with what should follow each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from ..errors import UsageError
from ..files import parse_json
from ..records import Record, first_problem


class Prompt(Record):
    """One prompt and what may follow it, as text or as token ids.

    Attributes:
        name: unique among the prompts of a sweep.
        prompt: the text, marks included.
        expected: the continuation that is right.
        rival: continuations that it competes with.
        prompt_ids, expected_ids, rival_ids: the same as token ids, for a model without a tokenizer.
        at: for ids, where the pads go: the index of the first token after them.
        until: for ids, where the second pads go.
        source: for ids, the index of the token that is asked about.
    """

    name: str = Field(min_length=1, max_length=200)
    prompt: str = ""
    expected: str = ""
    rival: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    expected_ids: tuple[int, ...] = ()
    rival_ids: tuple[tuple[int, ...], ...] = ()
    at: int | None = None
    until: int | None = None
    source: int | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if bool(self.prompt) == bool(self.prompt_ids):
            raise ValueError("give either prompt, a text, or prompt_ids, a list of token ids")
        if self.prompt_ids and not self.expected_ids:
            raise ValueError("prompt_ids need expected_ids")
        every = [self.prompt_ids, self.expected_ids, *self.rival_ids]
        if any(not 0 <= token < 2**31 for ids in every for token in ids) or () in self.rival_ids:
            raise ValueError("token ids are whole numbers from 0, and no list of them is empty")
        places = [place for place in (self.at, self.until, self.source) if place is not None]
        if any(not 0 <= place < max(len(self.prompt_ids), 1) for place in places):
            raise ValueError("at, until and source are indices into prompt_ids")
        return self


def read_prompts(
    paths: Sequence[Path], *, expected: str | None = None, rivals: Sequence[str] = ()
) -> tuple[Prompt, ...]:
    """Read prompts from text files, and from .jsonl files with one prompt a line.

    A text file is one prompt; one line break at its very end is dropped, because editors put it there. A
    line of JSON is an object with `prompt` (or `prompt_ids`), and where they differ from the arguments
    `name`, `expected` and `rival`.

    Args:
        paths: the files.
        expected: what should follow a prompt that does not say so itself.
        rivals: the same for what it competes with.

    Raises:
        UsageError: for a file that cannot be read, or a prompt that is none.
        BrokenRecordError: if a line is not JSON.
    """
    given = [
        record for path in paths for record in (_lines(path) if path.suffix == ".jsonl" else _text(path))
    ]
    if not given:
        raise UsageError(f"no prompt in {', '.join(map(str, paths)) or 'no file'}; give at least one")
    prompts, names = [], set()
    for where, record in given:
        defaults = {"rival": list(rivals), **({} if expected is None else {"expected": expected})}
        record = {**({} if "prompt_ids" in record else defaults), **record}
        if isinstance(record.get("rival"), str):
            record["rival"] = [record["rival"]]
        try:
            prompts.append(Prompt.model_validate(record))
        except ValidationError as error:
            raise UsageError(f"{where}: {first_problem(error, 'the prompt')}") from None
        if prompts[-1].name in names:
            raise UsageError(
                f"{where}: a second prompt is named {prompts[-1].name!r}; give each its own name"
            )
        names.add(prompts[-1].name)
    return tuple(prompts)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; give a text file or a .jsonl") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; give a text file or a .jsonl") from None


def _text(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    text = _read(path)
    yield str(path), {"name": path.name, "prompt": text.removesuffix("\n").removesuffix("\r")}


def _lines(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = parse_json(line, where)
        if not isinstance(record, dict):
            raise UsageError(f"{where} is no object with a prompt")
        yield where, {"name": f"{path.name}:{number}", **record}
