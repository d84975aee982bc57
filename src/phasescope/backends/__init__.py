"""Backends: whoever answers trials. The one that runs models is loaded by name, as it needs torch."""

from .base import Backend as Backend
from .planted import Planted as Planted
from .spec import BackendSpec as BackendSpec
from .spec import loaded as loaded
