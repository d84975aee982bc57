"""Conformance suites for compressors and engines of others, a server of our own, planted faults."""

from .conformance import LAWS as LAWS
from .conformance import EngineFaultError as EngineFaultError
from .conformance import LawBrokenError as LawBrokenError
from .conformance import assert_engine_invariant as assert_engine_invariant
from .conformance import check_compressor as check_compressor
