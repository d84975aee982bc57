"""An OpenAI-compatible server of our own, whose model is known and whose faults come on demand.

It is what tests and benchmarks measure over HTTP. It speaks the dialects that servers differ in: prompts
as ids or text, log-probabilities as lists or records, tokens named by text or id, with or without counts,
echoed ids, a /tokenize endpoint and a prefix cache.
"""

from .dialect import Dialect as Dialect
from .offers import Fault as Fault
from .offers import Kind as Kind
from .offers import Offers as Offers
from .server import FakeServer as FakeServer
from .server import Script as Script
