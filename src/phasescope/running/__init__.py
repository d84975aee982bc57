"""Engines: where the backends of a run live, and who answers which batch."""

from .engine import Answer as Answer
from .engine import Engine as Engine
from .engine import Introduction as Introduction
from .engine import Job as Job
from .engine import Local as Local
