"""Is it the engine or the model? An engine must give the same answer however the same tokens are fed."""

from .cases import Plan as Plan
from .invariances import INVARIANCES as INVARIANCES
from .subject import EngineUnderTest as EngineUnderTest
from .subject import NotOfferedError as NotOfferedError
from .subject import Reading as Reading
from .suite import check as check
from .verdict import Effect as Effect
from .verdict import Row as Row
from .verdict import Verdict as Verdict
from .verdict import row_words as row_words
