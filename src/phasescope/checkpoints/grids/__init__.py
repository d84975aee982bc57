"""Which grids a foreign checkpoint has, read from its config and its weights' headers; needs neither torch nor them."""

from .base import Fold as Fold
from .base import Hole as Hole
from .base import Layer as Layer
from .base import Target as Target
from .base import alike as alike
from .base import ranges as ranges
from .prior import FLAT as FLAT
from .prior import Prior as Prior
from .prior import overall as overall
from .prior import phase_prior as phase_prior
from .reading import families as families
from .reading import read_target as read_target
from .registry import FAMILIES as FAMILIES
from .registry import Family as Family
from .registry import read_config as read_config
from .techniques import TECHNIQUES as TECHNIQUES
from .techniques import technique as technique
