"""Numbers of a run for TensorBoard, or whatever tracker `accelerate` knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

from ..errors import MissingExtraError, UnknownNameError
from .optim import schedule
from .settings import Progress, Training

PROJECT = "phasescope"
LOOKS = ("gates",)  # what a look says that is no curve of numbers


def tracker_settings(name: str | None, out: Path) -> dict[str, Any]:
    """The arguments that make an `Accelerator` track by this name.

    Raises:
        UnknownNameError: if accelerate knows no such tracker.
        MissingExtraError: naming the package to install.
    """
    if name is None:
        return {}
    known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
    if name not in known:
        raise UnknownNameError(f"unknown tracker {name!r}; known: {', '.join(known)}")
    if name not in map(str, get_available_trackers()):
        package = name.replace("_", "-")
        raise MissingExtraError(f"tracker {name} needs {package}; install it with: pip install {package}")
    return {"log_with": name, "project_dir": out / "tracker"}


def start_tracking(accelerator: Accelerator, settings: Training) -> None:
    """Hand over the settings, under names such as `compression.width`."""
    if accelerator.log_with:
        accelerator.init_trackers(PROJECT, config=dict(_flat(settings.model_dump(mode="json"))))


def track_step(accelerator: Accelerator, settings: Training, progress: Progress) -> None:
    """Running means of a step, and the step sizes that it was made with."""
    if accelerator.log_with:
        share = schedule(progress.step - 1, settings)
        left_out = {"step", "since"} if progress.phase_losses else {"step", "since", "phase_losses"}
        facts = dict(_flat(progress.model_dump(mode="json", exclude=left_out, exclude_none=True)))
        sizes = {name: share * getattr(settings, name) for name in ("lr_matrices", "lr_gates", "lr_rest")}
        accelerator.log({**facts, **sizes}, step=progress.step)


def track_look(accelerator: Accelerator, step: int, facts: dict[str, Any]) -> None:
    """What a look says, as `look/NAME`; the weights of gates are in curve.jsonl alone."""
    if accelerator.log_with:
        curves = {name: value for name, value in facts.items() if name not in LOOKS}
        accelerator.log(dict(_flat(curves, "look/")), step=step)


def end_tracking(accelerator: Accelerator) -> None:
    """Write out what is not yet written; the processes stay together."""
    for tracker in accelerator.trackers:
        tracker.finish()


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested facts by dotted names; what is no number becomes a text."""
    if isinstance(value, dict | list) and value and len(value) <= 64:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        joint = "" if not name or name.endswith("/") else "."
        for key, item in items:
            yield from _flat(item, f"{name}{joint}{key}")
    else:
        yield name, value if isinstance(value, int | float) else str(value)
