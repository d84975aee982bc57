"""Training of compressed models on synthetic key-value retrieval, resumable to the same bytes."""

from .data import RetrievalTask as RetrievalTask
from .trainer import Progress as Progress
from .trainer import Training as Training
from .trainer import is_main_process as is_main_process
from .trainer import train as train
