"""Reports: one self-contained page per run or set of runs, and the summary that a terminal prints."""

from ..statistics.verdict import verdict as verdict
from .build import build_report as build_report
from .summary import summary as summary
