"""The command line where some packages cannot be imported, as in a base install."""

from collections.abc import Iterable

HEAVY = ("torch", "transformers", "accelerate", "safetensors")
SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from phasescope.cli import main
main()
"""


def without(blocked: Iterable[str] = HEAVY) -> str:
    """A script that runs the command line without these packages."""
    return f"BLOCKED = {list(blocked)}\n{SCRIPT}"
