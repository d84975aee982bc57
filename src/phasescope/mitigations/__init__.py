"""Repairs that need no training: place facts where a model reads well, or ask more than once."""

from ..statistics.profile import Profile as Profile
from ..statistics.profile import read_profile as read_profile
from ..statistics.profile import write_profiles as write_profiles
from .compare import Comparison as Comparison
from .compare import compare as compare
from .pack import Packing as Packing
from .pack import Passage as Passage
from .pack import pack as pack
from .text import Fact as Fact
from .text import Packed as Packed
from .text import pack_messages as pack_messages
from .text import pack_text as pack_text
from .text import warn as warn
from .trial import MitigateSettings as MitigateSettings
from .trial import MitigationResult as MitigationResult
from .trial import Outcome as Outcome
from .trial import conditions as conditions
from .trial import read_mitigation as read_mitigation
from .trial import result_of as result_of
from .unequal_records import Records as Records
from .vote import Combine as Combine
from .vote import PhaseVote as PhaseVote
from .vote import shifted as shifted
