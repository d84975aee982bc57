"""The verbs: what Python users and the command line call. Torch is imported only when a local model runs."""

from .answerers import Answerer as Answerer
from .answerers import local as local
from .answerers import served as served
from .card import write_card as write_card
from .check import check as check
from .measure import DEMO_CONTEXTS as DEMO_CONTEXTS
from .measure import DEMO_PROTOCOLS as DEMO_PROTOCOLS
from .measure import DEMO_SEED as DEMO_SEED
from .measure import conditions_of as conditions_of
from .measure import demo as demo
from .measure import measure as measure
from .mitigate import mitigate as mitigate
from .sweep import sweep_conditions as sweep_conditions
from .train import Inputs as Inputs
from .train import cost as cost
from .train import train as train
from .train import training_settings as training_settings
