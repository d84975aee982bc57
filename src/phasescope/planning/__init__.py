"""What a run will see and cost, before anything is spent."""

from .build import ConditionPlan as ConditionPlan
from .build import Prices as Prices
from .build import RunPlan as RunPlan
from .build import plan_run as plan_run
