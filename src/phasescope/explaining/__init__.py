"""Why a model's recall depends on phase: heads taken away one at a time, gates read, and the theory made runnable.

What runs models (`explanation`, `measured`, `ablation`, `probe`, `seam`, `reading`) needs torch and is imported by
name; the rest is numpy alone.
"""

from .coverage_score import CoverageScore as CoverageScore
from .result import ExplanationResult as ExplanationResult
from .result import read_explanation as read_explanation
from .units import Unit as Unit
