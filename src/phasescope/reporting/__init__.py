"""Reports: one self-contained page per run or set of runs, and the summary that a terminal prints."""

from .build import Report as Report
from .build import build_report as build_report
from .build import summary as summary
from .sentences import verdict as verdict
