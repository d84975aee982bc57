"""Find what an extra brings, or say in one line which extra is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import MissingExtraError, UsageError, installing

EXTRAS = {
    "torch": "models",
    "transformers": "models",
    "accelerate": "models",
    "safetensors": "models",
    "ray": "ray",
}
MOST_THREADS = 1024


def need(*packages: str) -> None:
    """Make sure that packages are installed, without importing them.

    Raises:
        MissingExtraError: naming the extra to install.
    """
    for package in packages:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise MissingExtraError(
                f"this needs {package}, which the base install leaves out; "
                f"install it with: {installing(EXTRAS[package])}"
            )


def check_models(threads: int) -> None:
    """Make sure that models can be run on so many threads; nothing is imported yet.

    Raises:
        MissingExtraError: naming the extra to install.
        UsageError: for more threads than any machine has.
    """
    need("torch", "transformers")
    if threads > MOST_THREADS:
        raise UsageError(f"threads is {threads}; give at most {MOST_THREADS}, best the machine's cores")


def prepare_models(threads: int) -> None:
    """Import torch, on so many threads, and have `transformers` draw no progress bars beside ours.

    Raises:
        MissingExtraError, UsageError: as in `check_models`.
    """
    check_models(threads)
    from ..backends.transformers.load import prepare

    prepare(threads)
