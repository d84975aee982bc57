"""Training of compressed models on synthetic retrieval, on text, or on both, resumable to the same bytes.

Settings and recipes need no torch; what trains is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily
from .data import RetrievalTask as RetrievalTask
from .recipes import RECIPES as RECIPES
from .settings import Progress as Progress
from .settings import Start as Start
from .settings import Text as Text
from .settings import Training as Training

if TYPE_CHECKING:
    from .start import read_start as read_start
    from .trainer import device as device
    from .trainer import held_out_loss as held_out_loss
    from .trainer import is_main_process as is_main_process
    from .trainer import train as train

__getattr__, __dir__ = lazily(
    __name__,
    {
        "read_start": ".start",
        **dict.fromkeys(("device", "held_out_loss", "is_main_process", "train"), ".trainer"),
    },
)
