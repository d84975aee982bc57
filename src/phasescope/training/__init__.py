"""Training of compressed models on synthetic retrieval, on text, or on both, resumable to the same bytes."""

from .data import RetrievalTask as RetrievalTask
from .recipes import RECIPES as RECIPES
from .settings import Progress as Progress
from .settings import Start as Start
from .settings import Text as Text
from .settings import Training as Training
from .start import read_start as read_start
from .trainer import device as device
from .trainer import held_out_loss as held_out_loss
from .trainer import is_main_process as is_main_process
from .trainer import train as train
