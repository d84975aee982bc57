"""Single tensors out of safetensors files, without the library and without loading the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BrokenRecordError, UsageError
from ..files import parse_json, read_json

Floats = npt.NDArray[np.float64]

MOST_HEADER = 100_000_000
"""Bytes; the format allows no more."""
MOST_NUMBERS = 2**26
"""Of one tensor; what is read here has a few thousand."""
INDEX = "model.safetensors.index.json"
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


@dataclass(frozen=True, slots=True)
class Slice:
    """Where one tensor lies.

    Attributes:
        file: the safetensors file.
        dtype: as the header says.
        shape: of the tensor.
        start, end: its bytes in the file.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Weights:
    """The tensors of a checkpoint folder by name: one file, or shards and their index.

    Only headers are read until a tensor is asked for, and of the shards only those that hold it.

    Args:
        folder: the checkpoint.

    Raises:
        UsageError: for an index or a header that cannot be meant, in one line.

    Source: the safetensors format: 8 bytes of length (little endian), a JSON header of dtypes, shapes and offsets,
        then the bytes of the tensors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._headers: dict[Path, dict[str, Slice]] = {}

    @cached_property
    def files(self) -> dict[str, Path]:
        """The file of each tensor."""
        if (self.folder / INDEX).is_file():
            return dict(self._indexed())
        singles = sorted(file for file in self.folder.glob("*.safetensors") if file.is_file())
        return {name: file for file in singles for name in self._header(file)}

    def every(self) -> Iterator[Slice]:
        """Where each tensor lies, in the files of the folder, whatever an index says."""
        for file in sorted(self.folder.glob("*.safetensors")):
            yield from self._header(file).values()

    def read(self, name: str) -> Floats:
        """One tensor, as float64.

        Raises:
            UsageError: if its file is missing or cut short, or the dtype is none of floating point.
        """
        file = self.files[name]
        where = self._header(file).get(name)
        if where is None:
            raise UsageError(
                f"{file} has no tensor {name!r}, though {INDEX} says so; fetch the checkpoint again"
            )
        if where.dtype not in ITEM_BYTES:
            raise UsageError(f"{file}: {name} has dtype {where.dtype}; known: {', '.join(ITEM_BYTES)}")
        count = math.prod(where.shape)
        if count > MOST_NUMBERS or count * ITEM_BYTES[where.dtype] != where.end - where.start:
            raise UsageError(
                f"{file}: {name} of shape {list(where.shape)} does not fill its bytes; fetch it again"
            )
        try:
            with file.open("rb") as opened:
                opened.seek(where.start)
                data = opened.read(where.end - where.start)
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from None
        return _numbers(data, where.dtype).reshape(where.shape)

    def _indexed(self) -> Iterator[tuple[str, Path]]:
        index = read_json(self.folder / INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict):
            raise UsageError(f"{self.folder / INDEX} has no weight_map; fetch the checkpoint again")
        for name, shard in shards.items():
            if not isinstance(shard, str) or Path(shard).name != shard or shard in ("", ".", ".."):
                raise UsageError(
                    f"{self.folder / INDEX} puts {name!r:.60} into {shard!r:.60}; a shard is a file in the same folder"
                )
            yield name, self.folder / shard

    def _header(self, file: Path) -> dict[str, Slice]:
        if file not in self._headers:
            self._headers[file] = _read_header(file)
        return self._headers[file]


def _read_header(file: Path) -> dict[str, Slice]:
    """Every tensor of one file, checked against the file's size."""
    try:
        size = file.stat().st_size
        if not file.is_file():  # a pipe would never end
            raise UsageError(f"{file} is no file; fetch the checkpoint again")
        with file.open("rb") as opened:
            prefix = opened.read(8)
            length = int.from_bytes(prefix, "little")
            if prefix == b"version ":
                raise UsageError(f"{file} is a Git LFS pointer, not weights; fetch it with: git lfs pull")
            if len(prefix) < 8 or length > min(MOST_HEADER, size - 8):
                raise UsageError(
                    f"{file} is no safetensors file, or cut short: its header would not fit in it"
                )
            header = parse_json(opened.read(length), f"the safetensors header of {file}")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; fetch the checkpoint again") from None
    except BrokenRecordError as error:
        raise UsageError(f"{error}; fetch the checkpoint again") from None
    if not isinstance(header, dict):
        raise UsageError(f"{file} has a header that is no object of tensors")
    body = 8 + length
    return {
        name: _slice(file, name, entry, body, size)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _slice(file: Path, name: str, entry: Any, body: int, size: int) -> Slice:
    broken = UsageError(
        f"{file}: the header's entry of {name!r:.80} cannot be meant; fetch the checkpoint again"
    )
    if not isinstance(entry, dict):
        raise broken
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise broken
    if len(offsets) != 2 or not all(type(number) is int and number >= 0 for number in (*shape, *offsets)):
        raise broken
    start, end = (body + offset for offset in offsets)
    if start > end:
        raise broken
    if end > size:
        raise UsageError(
            f"{file} is cut short: {name!r:.80} ends at byte {end:,} of {size:,}; fetch it again"
        )
    return Slice(file, dtype, tuple(shape), start, end)


def _numbers(data: bytes, dtype: str) -> Floats:
    """Bytes as numbers; formats that numpy lacks are widened to one that it has."""
    if dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16
        return np.asarray(wide.view("<f4"), np.float64)
    if dtype == "F8_E5M2":
        half = np.frombuffer(data, "u1").astype("<u2") << 8
        return np.asarray(half.view("<f2"), np.float64)
    if dtype == "F8_E4M3":
        return np.take(_e4m3(), np.frombuffer(data, "u1"))
    return np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)


def _e4m3() -> Floats:
    """The value of each byte in F8 E4M3: bias 7, no infinities, NaN where all exponent and mantissa bits are set."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    size = np.where(byte & 127 == 127, np.nan, size)
    return np.where(byte & 128, -size, size)
