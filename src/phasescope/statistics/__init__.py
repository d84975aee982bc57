"""From observations to findings: estimates with intervals, tests, and the period, honest about clusters."""

from .analysis import analyse as analyse
from .balance import PositionBalance as PositionBalance
from .balance import position_balance as position_balance
from .correction import correct as correct
from .sweep import analyse_sweep as analyse_sweep
