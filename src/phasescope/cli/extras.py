"""Import what an extra brings, or say in one line which extra is missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ..errors import MissingExtraError, UsageError

EXTRAS = {
    "torch": "models",
    "transformers": "models",
    "accelerate": "models",
    "safetensors": "models",
    "ray": "ray",
}
MOST_THREADS = 1024


def need(module: str) -> ModuleType:
    """Import a module of phasescope that rests on an optional package.

    Raises:
        MissingExtraError: naming the extra to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtraError(
            f"this needs {package}, which the base install leaves out; "
            f"install it with: pip install 'phasescope[{EXTRAS[package]}]'"
        ) from None


def need_models(threads: int) -> ModuleType:
    """`phasescope.verbs`, on so many threads, and without progress bars beside our own.

    Raises:
        MissingExtraError: naming the extra to install.
        UsageError: for more threads than any machine has.
    """
    if threads > MOST_THREADS:
        raise UsageError(f"threads is {threads}; give at most {MOST_THREADS}, best the machine's cores")
    need("torch").set_num_threads(threads)
    need("transformers").utils.logging.disable_progress_bar()
    return need("phasescope.verbs")
