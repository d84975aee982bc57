"""Data-parallel workers on this machine: one process and one backend each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from ..backends import BackendSpec
from .engine import Dispatcher
from .pool import Call, Lost, Outcome, Pool, perform

_SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and a GPU's context

PATIENCE = 2.0
"""Seconds in which workers may end by themselves."""


class Processes(Pool):
    """Workers as processes of this machine.

    Of several workers, each that is told to use the device `cuda` gets a GPU of its own: cuda:0, cuda:1, ….

    Args:
        workers: how many.
    """

    def __init__(self, workers: int = 2) -> None:
        super().__init__(workers)
        self._workers: dict[int, tuple[Any, Connection]] = {}

    def start_worker(self, place: int) -> None:
        """Start a process."""
        specs = [_placed(spec, place, self.workers) for spec in self.specs]
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=serve, args=(theirs, specs), daemon=True)
        # A blocked signal stays blocked in the new process: Ctrl-C is for the main one alone, from the first moment.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()
        self._workers[place] = process, ours

    def send(self, place: int, call: Call) -> None:
        """Send it through the pipe; that the worker is gone shows in `next`."""
        try:
            self._workers[place][1].send(call)
        except OSError:  # it died since; the pipe's end says so
            return

    def next(self) -> tuple[int, Outcome]:
        """The first worker that answers or ends."""
        places = {connection: place for place, (_, connection) in self._workers.items()}
        connection: Any = wait(list(places))[0]
        place = places[connection]
        try:
            outcome: Outcome = connection.recv()
        except (EOFError, OSError):
            process, _ = self._workers.pop(place)
            connection.close()
            process.join()
            return place, Lost(_ending(process.exitcode))
        return place, outcome

    def close(self) -> None:
        """Close the pipes, so that idle workers end; end those that are still busy, whose answers nobody needs."""
        for _, connection in self._workers.values():
            connection.close()
        deadline = time.monotonic() + PATIENCE
        for process, _ in self._workers.values():
            process.join(max(0.0, deadline - time.monotonic()))
            process.terminate()
            process.join()
        self._workers = {}


def serve(connection: Connection, specs: Sequence[BackendSpec]) -> None:
    """What a worker does until the main process closes the pipe."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the main process, which then ends the workers
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the run has one of its own
    dispatcher = Dispatcher(specs)
    while True:
        try:
            call = connection.recv()
            connection.send(perform(dispatcher, call))
        except (EOFError, OSError):
            return


def _placed(spec: BackendSpec, place: int, workers: int) -> BackendSpec:
    """The spec with the worker's own GPU."""
    if workers > 1 and spec.settings.get("device") == "cuda":
        return spec.with_settings(device=f"cuda:{place}")
    return spec


def _ending(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by signal {-exitcode}"
    return f"exit code {exitcode}"
