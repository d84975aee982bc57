"""`phasescope probe`: what an OpenAI-compatible server can do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ..backends.openai.capabilities import Capabilities
from ..backends.openai.client import Client, key_from
from ..backends.openai.probe import probe as ask
from ..text.tokens import Tokenizer
from .server import KeyVariable, PerMinute, Timeout, Tries, limits, quiet_retries
from .terminal import say


def probe(
    base_url: Annotated[str, typer.Argument(help="The server's address, such as http://localhost:8000/v1.")],
    model: Annotated[str | None, typer.Option(help="A model's name there; else the only one.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of the model's tokenizer.")] = None,
    key_env: KeyVariable = None,
    requests_per_minute: PerMinute = None,
    timeout: Timeout = 60.0,
    tries: Tries = 3,
) -> None:
    """Ask a server some forty short questions, and print what it can do for a measurement."""
    quiet_retries()
    own = None if tokenizer is None else Tokenizer.load(tokenizer)
    client = Client(
        base_url, key=key_from(key_env), limits=limits(1, requests_per_minute, timeout, tries, None)
    )

    async def found() -> Capabilities:
        async with client:
            return await ask(client, model, own)

    for ability, answer in asyncio.run(found()).lines():
        say(f"{ability:<32} {answer}")
