"""From observations to findings: estimates with intervals, tests, and the period, honest about clusters."""

from .analysis import analyse as analyse
from .correction import correct as correct
from .sweep import analyse_sweep as analyse_sweep
