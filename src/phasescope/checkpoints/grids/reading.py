"""From a path to a target: a checkpoint's folder, its config.json, or a name on the hub where there is a network."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from ...errors import UsageError
from ...files import read_json
from ..config import MOST_BYTES
from ..resolve import names, resolve
from .base import Target
from .registry import FAMILIES, Family, read_config

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read_target(path: str | Path) -> Target:
    """Which grids a checkpoint has, from its config alone.

    Args:
        path: a known name, a checkpoint's folder, a config.json, or `owner/name` on the Hugging Face hub.

    Raises:
        UnknownNameError: if it is none of these.
        UsageError: if there is no config to be found or read, or it contradicts itself, in one line.
        BrokenRecordError: if it is not JSON.
    """
    file = _config_file(path)
    return read_config(read_json(file, MOST_BYTES, finite=False), source=str(file))


def _config_file(path: str | Path) -> Path:
    given = Path(path)
    try:
        folder, file = given.is_dir(), given.is_file()
    except (OSError, ValueError):  # too long, or a NUL in it
        folder = file = False
    if str(path) not in names():
        if file:
            return given
        if not folder and HUB_NAME.fullmatch(str(path)):
            return _from_hub(str(path))
    if str(path) in names() or not folder:
        given = resolve(str(path)).folder
    if not (given / "config.json").is_file():
        raise UsageError(f"{path} holds no config.json; give a checkpoint's folder")
    return given / "config.json"


def _from_hub(name: str) -> Path:
    """The config of a model on the hub; nothing else is fetched."""
    try:
        from huggingface_hub import constants, hf_hub_download
    except ImportError:
        raise UsageError(
            f"no folder {name!r}, and without huggingface_hub no way to fetch it; "
            "install it, or fetch config.json and give its path"
        ) from None
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what went wrong is said once, below
    try:
        _reachable(constants.ENDPOINT)
        return Path(hf_hub_download(name, "config.json", etag_timeout=10))
    except Exception as error:  # the client lets through what its HTTP library raises, and that changes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"no folder {name!r}, and its config.json could not be fetched from the hub ({reason:.120}); "
            "fetch it yourself and give its path"
        ) from None
    finally:
        log.setLevel(level)


def _reachable(endpoint: str) -> None:
    """Find out at once that there is no network: the hub's client would try again for half a minute.

    Raises:
        OSError: if the host has no address; behind a proxy, or with the client set offline, it isn't looked for.
    """
    if not getproxies() and not os.environ.get("HF_HUB_OFFLINE"):
        socket.getaddrinfo(urlsplit(endpoint).hostname, None)


def families() -> Iterator[tuple[Family, Target]]:
    """Every family with the target of its example."""
    for family in FAMILIES:
        config: dict[str, Any] = {"model_type": family.types[0], **(family.example or {})}
        yield family, read_config(config, source=family.name)
