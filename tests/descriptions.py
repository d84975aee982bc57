"""Descriptions of conditions, and observations, for tests that measure nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phasescope import Observation
from phasescope.runs import ConditionDescription


def described(
    model: str,
    strides: Sequence[int] | None = (),
    *,
    backend: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    trials: int = 288,
    **protocol: Any,
) -> ConditionDescription:
    """A condition as run.json describes it.

    Args:
        model: its name, and the condition's.
        strides: of its grids, which are as wide; None where they are not known.
        backend: further facts of the backend.
        settings: of the protocol.
        trials: that are planned.
        **protocol: further facts of the protocol.
    """
    grids = None if strides is None else [{"width": s, "stride": s, "shift": 0} for s in strides]
    facts = {
        "name": model,
        "backend": {"backend": "planted", "model": model, "grids": grids} | (backend or {}),
        "protocol": {
            "name": "prefix",
            "moves": "source",
            "settings": settings or {},
            "plan": {"trials": trials, "prompt_tokens": trials, "prefix_tokens": trials},
        }
        | protocol,
    }
    return ConditionDescription.checked_json(json.dumps(facts))


def observation(number: int) -> Observation:
    """One of a row of different observations."""
    return Observation(
        condition="a",
        trial=f"{number:016x}",
        cluster="c0000",
        block=f"c0000/k{number:03d}",
        layout=number % 24,
        source_position=number,
        query_position=40,
        prompt_tokens=41,
        answer=3,
        score=number % 2,
        logprob=-0.1 * number,
    )


def without_digests(log: Path) -> bytes:
    """The content of a log as version 0.1 would have written it."""
    lines = log.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b'{"batch":'))
