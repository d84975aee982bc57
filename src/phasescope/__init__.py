"""phasescope measures, explains and removes phase sensitivity in long-context language models."""

from .catalog import BACKENDS as BACKENDS
from .catalog import COMPRESSORS as COMPRESSORS
from .catalog import ENGINES as ENGINES
from .catalog import PROTOCOLS as PROTOCOLS
from .errors import BrokenRecordError as BrokenRecordError
from .errors import MissingExtraError as MissingExtraError
from .errors import PhasescopeError as PhasescopeError
from .errors import UnknownNameError as UnknownNameError
from .errors import UsageError as UsageError
from .grid import WindowGrid as WindowGrid
from .records import Finding as Finding
from .records import Observation as Observation
from .records import Reply as Reply
from .records import Trial as Trial

__version__ = "0.1.0"
