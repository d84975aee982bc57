"""Workers as actors of a Ray cluster, or of a Ray that is started on this machine for the run."""

from __future__ import annotations

import logging
import os
from typing import Any

from ..errors import UsageError
from .engine import Dispatcher
from .pool import Call, Done, Failed, Lost, Outcome, Pool, perform

STORE_BYTES = 512 * 2**20
"""Object store of a Ray of our own; a batch is a few megabytes at most."""


class Ray(Pool):
    """Workers as Ray actors; Ray chooses their machines and GPUs.

    Where `RAY_ADDRESS` names a cluster, its nodes need phasescope installed, and models under the same path.

    Args:
        workers: how many actors.
    """

    def __init__(self, workers: int = 2) -> None:
        super().__init__(workers)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
        import ray  # an optional extra; everything but this class does without

        self._ray: Any = ray
        self._ours = False
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, int] = {}

    def start_worker(self, place: int) -> None:
        """Start an actor, and before the first one Ray."""
        if not self._ray.is_initialized():
            self._begin()
        gpus = float(any(str(spec.settings.get("device")).startswith("cuda") for spec in self.specs))
        if place not in self._actors:
            self._check_room(gpus)
        actor = self._ray.remote(Worker).options(num_cpus=1, num_gpus=gpus, max_restarts=0)
        self._actors[place] = actor.remote(self.specs)

    def send(self, place: int, call: Call) -> None:
        """A remote call; the batch goes through Ray's object store."""
        self._waiting[self._actors[place].perform.remote(call)] = place

    def next(self) -> tuple[int, Outcome]:
        """Whichever actor is ready, or known to be dead, first."""
        (ready, *_), _ = self._ray.wait(list(self._waiting), num_returns=1)
        place = self._waiting.pop(ready)
        try:
            outcome: Outcome = self._ray.get(ready)
        except self._ray.exceptions.RayActorError:
            del self._actors[place]
            return place, Lost("its actor died")
        return place, outcome

    def close(self) -> None:
        """End the actors, and Ray where this run started it."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors, self._waiting = {}, {}
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def _begin(self) -> None:
        """Join the cluster that `RAY_ADDRESS` names, or start a small one here."""
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not os.environ.get("RAY_ADDRESS"):
            cpus = max(self.workers, os.cpu_count() or 1)
            settings |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        try:
            self._ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            address = os.environ.get("RAY_ADDRESS")
            raise UsageError(
                f"cannot reach Ray at {address or 'this machine'}: {error}".splitlines()[0]
            ) from None
        self._ours = True

    def _check_room(self, gpus: float) -> None:
        """Refuse to wait for what the cluster does not have."""
        have = self._ray.cluster_resources()
        for kind, each in (("CPU", 1.0), ("GPU", gpus)):
            if each * self.workers > have.get(kind, 0):
                raise UsageError(
                    f"{self.workers} workers need {each * self.workers:.0f} {kind}s, the Ray cluster has "
                    f"{have.get(kind, 0):.0f}; give fewer workers"
                )


class Worker:
    """The actor: it carries out requests."""

    def __init__(self, specs: Any) -> None:
        self._dispatcher = Dispatcher(specs)

    def perform(self, call: Call) -> Done | Failed:
        """As every worker does."""
        return perform(self._dispatcher, call)
