"""A planted backend that kills its own process, as a memory killer would."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phasescope import Reply, Trial, WindowGrid
from phasescope.backends import Planted


@dataclass(kw_only=True)
class Mortal(Planted):
    """Dies before it answers some contexts, so often as the folder says; errs at others.

    Args:
        folder: holds a file of each death.
        dies: context → how many times.
        errs: a context whose answer fails with an error that is no end.
    """

    grid: WindowGrid = WindowGrid(4, 4)  # noqa: RUF009  # frozen
    curve: Sequence[float] = (0.9, 0.6, 0.3, 0.75)
    folder: str = ""
    dies: dict[str, int]
    errs: str = ""

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """Answer, err, or die."""
        cluster = trials[0].cluster
        if cluster == self.errs:
            raise ZeroDivisionError(f"at {cluster}")
        graves = list(Path(self.folder).glob(f"{cluster}-*")) if self.folder else []
        if len(graves) < self.dies.get(cluster, 0):
            (Path(self.folder) / f"{cluster}-{len(graves)}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().answer(trials)
