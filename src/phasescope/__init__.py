"""phasescope measures, explains and removes phase sensitivity in long-context language models."""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from .catalog import BACKENDS as BACKENDS
    from .catalog import COMPRESSORS as COMPRESSORS
    from .catalog import ENGINES as ENGINES
    from .catalog import PROTOCOLS as PROTOCOLS
    from .errors import BrokenRecordError as BrokenRecordError
    from .errors import MissingExtraError as MissingExtraError
    from .errors import PhasescopeError as PhasescopeError
    from .errors import ServerError as ServerError
    from .errors import UnknownNameError as UnknownNameError
    from .errors import UsageError as UsageError
    from .grid import WindowGrid as WindowGrid
    from .records import Dropped as Dropped
    from .records import Finding as Finding
    from .records import Observation as Observation
    from .records import Reply as Reply
    from .records import Trial as Trial
    from .running.runner import Condition as Condition
    from .runs import Run as Run
    from .runs import read_run as read_run
    from .verbs.audit import audit as audit
    from .verbs.check import check as check
    from .verbs.compare import compare as compare
    from .verbs.explain import explain as explain
    from .verbs.inspect import inspect as inspect
    from .verbs.measure import measure as measure
    from .verbs.measure import plan as plan
    from .verbs.mitigate import mitigate as mitigate
    from .verbs.report import report as report
    from .verbs.sweep import sweep as sweep
    from .verbs.train import train_anew as train

__version__ = "0.1.0"

__getattr__, __dir__ = lazily(
    __name__,
    dict.fromkeys(("BACKENDS", "COMPRESSORS", "ENGINES", "PROTOCOLS"), ".catalog")
    | dict.fromkeys(
        (
            *("BrokenRecordError", "MissingExtraError", "PhasescopeError"),
            *("ServerError", "UnknownNameError", "UsageError"),
        ),
        ".errors",
    )
    | dict.fromkeys(("Dropped", "Finding", "Observation", "Reply", "Trial"), ".records")
    | dict.fromkeys(("Run", "read_run"), ".runs")
    | {"Condition": ".running.runner", "WindowGrid": ".grid", "plan": ".verbs.measure"}
    | {"train": ".verbs.train:train_anew"}
    | {
        name: f".verbs.{name}"
        for name in (
            "audit",
            "check",
            "compare",
            "explain",
            "inspect",
            "measure",
            "mitigate",
            "report",
            "sweep",
        )
    },
)
