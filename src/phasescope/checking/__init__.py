"""Is it the engine or the model? An engine must give the same answer however the same tokens are fed."""

from .cases import PromptPlan as PromptPlan
from .engine import Continuation as Continuation
from .engine import EngineUnderTest as EngineUnderTest
from .engine import NotOfferedError as NotOfferedError
from .invariances import INVARIANCES as INVARIANCES
from .suite import check as check
from .verdict import Effect as Effect
from .verdict import Outcome as Outcome
from .verdict import Verdict as Verdict
