"""Which phases an existing benchmark visits, what it could hide at the others, and how to even it out."""

from ..text.locate import Locator as Locator
from .coverage import STRIDES as STRIDES
from .coverage import Coverage as Coverage
from .coverage import cover as cover
from .hidden import blind_phases as blind_phases
from .hidden import detectable_loss as detectable_loss
from .hidden import hidden_loss as hidden_loss
from .run import Audit as Audit
from .run import Settings as Settings
from .run import audit as audit
from .run import write as write
from .strides import strides_of_model as strides_of_model
