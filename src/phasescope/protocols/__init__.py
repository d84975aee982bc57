"""Protocols: what is asked, at which positions, and how an answer is scored."""

from ..text.prompts import Prompt as Prompt
from .base import Batch as Batch
from .base import Plan as Plan
from .base import Protocol as Protocol
from .base import described_protocol as described_protocol
from .kv_retrieval import InSequencePadding as InSequencePadding
from .kv_retrieval import PrefixPadding as PrefixPadding
from .kv_retrieval import QueryPadding as QueryPadding
from .needle import Needle as Needle
from .padding_sweep import PaddingSweep as PaddingSweep
