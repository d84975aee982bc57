"""From observations to findings: estimates with intervals, tests, and the period, honest about clusters."""

from .analysis import analyse as analyse
from .sweep import analyse_sweep as analyse_sweep
from .verdict import correct as correct
