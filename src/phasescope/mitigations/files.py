"""Records in a JSONL file, joined to a prompt, packed, and written back line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..files import parse_json, write_atomic
from ..settings import Settings, setting
from ..statistics.profile import Profile
from ..text.padding import FAMILIES, parse_families
from ..text.tokens import Tokenizer
from .text import Fact, Packed, pack_text


class PackSettings(Settings):
    """How records become a prompt, and what may be added: options of `phasescope pack`."""

    text: str = setting("text", "The field that holds a record's text.")
    key: str = setting("key", "The field that holds what will be asked for: part of the text.")
    before: Path | None = setting(None, "A file with what stands before the records.")
    after: Path | None = setting(None, "A file with what stands after them.")
    separator: str = setting("\\n", "What stands after each record; \\n is a line's end.")
    chat: bool = setting(False, "The prompt is a user message in the model's chat template.")
    limit: int | None = setting(None, "The most tokens to add in all.", ge=0)
    families: tuple[str, ...] = setting(
        (), f"Neutral text: {', '.join(FAMILIES)}, or text:YOUR TEXT; may be repeated.", option="family"
    )


class PackedFile(NamedTuple):
    """A packed file: the prompt, or the user's message, with its pads; and what was done to it."""

    message: str
    packed: Packed


def pack_file(
    records: Path,
    out: Path,
    settings: PackSettings,
    profile: Profile,
    tokenizer: Tokenizer,
) -> PackedFile:
    """Pack the records of a JSONL file and write the same lines with the pads in front of their texts.

    Each line keeps its fields; its text is padded, and `pad_tokens` and, where it has a key, `position`,
    `phase` and `phase_before` are added.

    Raises:
        UsageError: for a file that cannot be read, a line without text, or a key that is not in its text.
        BrokenRecordError: for a line that is no JSON object.
    """
    if out.resolve() == records.resolve():
        raise UsageError(f"{out} is the file that is read; give another file to write")
    families = settings.families or tuple(FAMILIES)
    parse_families(families)
    lines = _lines(records, settings)
    head, tail = (_content(path) for path in (settings.before, settings.after))
    texts = [line[settings.text] + settings.separator.replace("\\n", "\n") for line in lines]
    message = head + "".join(texts) + tail
    full = _in_template(message, tokenizer) if settings.chat else message
    at = full.index(message) + len(head)
    places, marks, found = [], [], []
    for line, text in zip(lines, texts, strict=True):
        places.append(at)
        if (key := line.get(settings.key)) is not None:
            marks.append(key)
            found.append(at + line[settings.text].index(key))
        at += len(text)
    packed = pack_text(
        full,
        marks,
        profile,
        tokenizer,
        found=found,
        places=places,
        limit=settings.limit,
        families=families,
    )
    first = places[0] - len(head) if places else 0
    written = [_written(line, settings, place, packed) for line, place in zip(lines, places, strict=True)]
    _add_facts(written, [line.get(settings.key) is not None for line in lines], packed)
    write_atomic(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written))
    shift = sum(len(pad) for pad in packed.pads.values())
    return PackedFile(packed.text[first : first + len(message) + shift], packed)


def read_prompt(path: Path, tokenizer: Tokenizer, *, chat: bool) -> str:
    """The prompt of a text file as the model reads it.

    Raises:
        UsageError: if it cannot be read, or the chat template changes it.
    """
    message = _content(path)
    return _in_template(message, tokenizer) if chat else message


def _content(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; give a text file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def _in_template(message: str, tokenizer: Tokenizer) -> str:
    text = tokenizer.render([{"role": "user", "content": message}])
    if text.count(message) != 1:
        raise UsageError(
            f"the chat template of {tokenizer.name} changes the message; strip its ends of blanks"
        )
    return text


def _lines(path: Path, settings: PackSettings) -> list[dict[str, Any]]:
    lines = []
    for number, line in enumerate(_content(path).split("\n"), start=1):
        if not line.strip():
            continue
        record = parse_json(line, f"{path}, line {number}")
        if not isinstance(record, dict) or not isinstance(record.get(settings.text), str):
            raise UsageError(
                f"{path}, line {number} has no text in {settings.text!r}; name its field with --text"
            )
        key = record.get(settings.key)
        if key is not None and (not isinstance(key, str) or not key or key not in record[settings.text]):
            raise UsageError(f"{path}, line {number}: the key {key!r} is not in the text; give a part of it")
        lines.append(record)
    if not any(settings.key in line for line in lines):
        raise UsageError(f"no line of {path} has a {settings.key!r}; name the field with --key")
    return lines


def _written(line: dict[str, Any], settings: PackSettings, place: int, packed: Packed) -> dict[str, Any]:
    pad = packed.pads.get(place, "")
    return {**line, settings.text: pad + line[settings.text], "pad_tokens": packed.pad_tokens.get(place, 0)}


def _add_facts(lines: list[dict[str, Any]], marked: Sequence[bool], packed: Packed) -> None:
    facts: list[tuple[Fact, Fact]] = list(zip(packed.before, packed.after, strict=True))
    with_key = [line for line, has in zip(lines, marked, strict=True) if has]
    for line, (before, after) in zip(with_key, facts, strict=True):
        line |= {"phase_before": before.phase, "position": after.position, "phase": after.phase}
