"""Damage to files: what users, editors, other programs and full disks do to them, and worse."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

Form = Literal["json", "lines", "text", "safetensors"]
Where = tuple[str | int, ...]

RAW = {
    "@digits@": "9" * 400,
    "@more digits@": "-" + "7" * 6000,
    "@deep list@": "[" * 100_000 + "]" * 100_000,
    "@deep object@": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "@half a surrogate@": '"\\ud83d"',
}
"""Written into a document as they stand: `json.dumps` would refuse or mend them."""
TWICE = "@twice@"
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf")),
    *(10**9, 2**31, 2**63, 2**64, -(2**63), 10**18),
    *("", "4", "x", "nan", "\u2028", "\x00", "\x1b[31m", "../../etc/passwd", "漢🙂", "a" * 10_000),
    *([], {}, [[]], ["x"], [None], [1, 2, 3], {"": 0}, {"x": {"x": {}}}),
    *RAW,
)
PIECES = (
    b"\xef\xbb\xbf",
    "\u2028".encode(),
    b"\xff\xfe",
    b"\x00" * 8,
    b"\xed\xa0\xbd",
    b"\r\n",
    b"\n\n",
    b'"',
    b"{",
    b",",
    b"\xff" * 8,
    b"NaN",
)


@dataclass(frozen=True)
class Step:
    """One damage, said without the file, so that it fits any.

    Attributes:
        name: what is done.
        line: which of several lines, 0 to 1.
        place: where in the document or line, 0 to 1.
        value: what is put there.
    """

    name: str
    line: float
    place: float
    value: Any


share = st.floats(0, 1, exclude_max=True, width=32)
values = st.sampled_from(VALUES)
inside = st.builds(
    Step,
    st.sampled_from(["put", "put", "put", "drop", "rename", "twice", "wrap", "move"]),
    share,
    share,
    values,
)
outside = st.builds(
    Step,
    st.sampled_from(["cut", "insert", "flip", "empty", "drop line", "double line", "swap lines"]),
    share,
    share,
    st.one_of(st.sampled_from(PIECES), st.binary(min_size=1, max_size=12)),
)
steps = st.one_of(
    st.lists(inside, min_size=1, max_size=1),
    st.lists(inside, min_size=1, max_size=1),
    st.lists(inside, min_size=2, max_size=4),
    st.lists(outside, min_size=1, max_size=2),
)
"""One to four damages, most often one within the document: more would hide each other."""


def damaged(whole: bytes, form: Form, done: list[Step]) -> bytes:
    """A file after some damage."""
    for step in done:
        whole = _damaged(whole, form, step)
    return whole


def _damaged(whole: bytes, form: Form, step: Step) -> bytes:
    if form == "safetensors":
        return _header(whole, step)
    if isinstance(step.value, bytes):
        return _bytes(whole, step)
    if form == "json":
        return _document(whole, step)
    lines = whole.splitlines(keepends=True) or [b""]
    index = int(step.line * len(lines))
    if form == "lines":
        lines[index] = _document(lines[index], step) + b"\n"
    else:
        words = lines[index].split(b",")
        words[int(step.place * len(words))] = RAW.get(str(step.value), str(step.value)).encode()[:100_000]
        lines[index] = b",".join(words) + b"\n"
    return b"".join(lines)


def _header(whole: bytes, step: Step) -> bytes:
    """Damage in the header of a safetensors file, with its length put right where the header is still a document."""
    if isinstance(step.value, bytes):
        return _bytes(whole[:4000], step) + whole[4000:]
    length = int.from_bytes(whole[:8], "little")
    header = _document(whole[8 : 8 + length], step)
    return len(header).to_bytes(8, "little") + header + whole[8 + length :]


def _bytes(whole: bytes, step: Step) -> bytes:
    at = int(step.place * len(whole))
    lines = whole.splitlines(keepends=True) or [b""]
    index = int(step.line * len(lines))
    match step.name:
        case "cut":
            return whole[:at]
        case "insert":
            return whole[:at] + step.value + whole[at:] if step.line < 0.7 else step.value + whole
        case "flip":
            return whole[:at] + step.value + whole[at + len(step.value) :]
        case "empty":
            return b"" if step.place < 0.5 else step.value
        case "drop line":
            del lines[index]
        case "double line":
            lines.insert(index, lines[index])
        case _:
            lines.append(lines.pop(index))
    return b"".join(lines)


def _document(whole: bytes, step: Step) -> bytes:
    try:
        content = json.loads(whole)
    except (ValueError, RecursionError):  # damaged before
        return whole
    paths = list(_paths(content))
    content = _put(copy.deepcopy(content), paths[int(step.place * len(paths))], step)
    text = json.dumps(content)
    for marked, raw in RAW.items():
        text = text.replace(json.dumps(marked), raw)
    return text.replace(f'"{TWICE}', '"').encode()


def _paths(content: Any, path: Where = ()) -> Iterator[Where]:
    """Where something stands in a document; long lists by their first and last elements."""
    yield path
    if isinstance(content, dict):
        for key in content:
            yield from _paths(content[key], (*path, key))
    elif isinstance(content, list):
        for index in sorted({*range(min(3, len(content))), len(content) - 1} - {-1}):
            yield from _paths(content[index], (*path, index))


def _put(content: Any, path: Where, step: Step) -> Any:
    """Damage what stands at a path."""
    if not path:
        return {"put": step.value, "wrap": [content]}.get(step.name, step.value)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    last: Any = path[-1]
    there = inner[last]
    match step.name:
        case "put":
            inner[last] = step.value
        case "drop":
            del inner[last]
        case "wrap":
            inner[last] = [there] if step.line < 0.5 else {"x": there}
        case "move" if isinstance(inner, list):
            inner.insert(0, step.value)
        case "rename" | "move" if isinstance(inner, dict):
            del inner[last]
            inner[str(step.value) if step.line < 0.5 else last.upper()] = there
        case "twice" if isinstance(inner, dict):
            inner[TWICE + last] = step.value
        case _:
            inner.append(there) if isinstance(inner, list) else inner.update({last: str(there)})
    return content
