"""Engines: where the backends of a run live, and who answers which batch."""

from .base import Answer as Answer
from .base import Engine as Engine
from .base import Introduction as Introduction
from .base import Job as Job
from .local import Local as Local
