"""Why a model's recall depends on phase: heads ablated one at a time, and gates read on real inputs.

What runs models (`explanation`, `measured`, `ablation`, `probe`, `hooks`, `reading`) needs torch and is imported by
name; the rest is numpy alone.
"""

from .coverage_score import CoverageScore as CoverageScore
from .result import ExplanationResult as ExplanationResult
from .result import read_explanation as read_explanation
from .units import Unit as Unit
