"""Single tensors out of safetensors files, against the library that wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from phasescope import PhasescopeError, UsageError
from phasescope.checkpoints.safetensors import INDEX, Weights

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_float_format_is_read_as_torch_reads_it(tmp_path: Path, dtype: torch.dtype) -> None:
    """Random numbers, zeros of both signs, and the smallest and largest ones."""
    info = torch.finfo(dtype)
    ends = torch.tensor([0.0, -0.0, info.max, info.min, info.tiny, info.smallest_normal])
    given = torch.cat([torch.randn(58), ends.float()]).reshape(8, 8).to(dtype)
    save_file({"a": given, "b": torch.ones(3)}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(Weights(tmp_path).read("a"), given.to(torch.float64).numpy())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_all_bytes_of_the_eight_bit_formats(tmp_path: Path, dtype: torch.dtype) -> None:
    """256 values each, infinities and NaN included."""
    given = torch.arange(256, dtype=torch.uint8).view(dtype)
    save_file({"a": given}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(Weights(tmp_path).read("a"), given.to(torch.float64).numpy())


def test_of_shards_only_those_that_are_needed_are_opened(tmp_path: Path) -> None:
    """The index names the file of each tensor; another shard may be missing."""
    save_file({"a": torch.arange(6.0).reshape(2, 3)}, tmp_path / "one.safetensors")
    (tmp_path / INDEX).write_text(
        json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    )
    weights = Weights(tmp_path)
    assert weights.read("a").tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UsageError, match=r"two\.safetensors"):
        weights.read("b")


def broken(entry: object) -> bytes:
    header = json.dumps({"a": entry}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0" * 16


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no safetensors file, or cut short"),
        (b"\x08", "no safetensors file, or cut short"),
        ((2**62).to_bytes(8, "little") + b"{}", "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        ((4).to_bytes(8, "little") + b"\xff\xfe{}", "the safetensors header of"),
        ((2).to_bytes(8, "little") + b"[]", "no object of tensors"),
        ((60_000).to_bytes(8, "little") + b"[" * 60_000, "the safetensors header of"),
        (broken(5), "cannot be meant"),
        (broken({"dtype": "F32", "shape": [2, -1], "data_offsets": [0, 8]}), "cannot be meant"),
        (broken({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}), "cannot be meant"),
        (broken({"dtype": "F32", "shape": [2], "data_offsets": [0, True]}), "cannot be meant"),
        (broken({"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}), "is cut short"),
        (broken({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}), "does not fill its bytes"),
        (
            broken({"dtype": "F32", "shape": [10**15, 10**15], "data_offsets": [0, 8]}),
            "does not fill its bytes",
        ),
        (broken({"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}), "dtype I64"),
        (broken({"dtype": "Q4", "shape": [1], "data_offsets": [0, 8]}), "dtype Q4"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: bytes, said: str) -> None:
    """Cut, forged or foreign: nothing is guessed."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        Weights(tmp_path).read("a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no weight_map"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', "same folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "same folder"),
        ('{"weight_map": {"a": ".."}}', "same folder"),
        ('{"weight_map": {"a": 5}}', "same folder"),
    ],
)
def test_a_broken_index_is_one_clear_line(tmp_path: Path, index: str, said: str) -> None:
    """No path leaves the folder."""
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(PhasescopeError, match=said):
        Weights(tmp_path).read("a")


def test_an_index_that_names_the_wrong_file_is_refused(tmp_path: Path) -> None:
    """The file is there, the tensor is not."""
    save_file({"b": torch.ones(2)}, tmp_path / "one.safetensors")
    (tmp_path / INDEX).write_text('{"weight_map": {"a": "one.safetensors"}}')
    with pytest.raises(UsageError, match="has no tensor 'a'"):
        Weights(tmp_path).read("a")
