"""Collective communication among processes: libcoll for Python.

    import coll, numpy as np
    with coll.init() as comm:
        x = np.full(4, comm.rank + 1.0)
        print(comm.all_reduce(x))

Started by `collrun -n 2 python program.py`, torchrun, mpirun or srun; alone it is a job of one rank.
The guide is docs/guide/python.md of the source.
"""

from __future__ import annotations

from . import _coll
from ._buffers import advice as _advice
from ._buffers import describe as _describe
from ._buffers import like as _like
from ._coll import Buffer, DeviceArray, Event, Op, Stream
from ._comm import ANY, Communicator, Envelope, Message, Operation, Receive, UniqueId, group, init, init_all, progress, raw, unique_id
from ._errors import (AbortedError, ArgumentError, BootstrapError, CancelledError, CollError, CollMemoryError, ConfigError,
                      CorruptError, Excluded, InternalError, MismatchError, PeerDead, PeerError, PeerLate, PeerSilent,
                      SystemFailure, UnsupportedError)
from ._errors import make as _make
from ._files import get_include, get_library, get_program, settings, version
from ._log import log_to
from ._work import Work

_coll.setup(_make, ArgumentError, UnsupportedError, _like, _describe, _advice, Work, Message)

__version__ = version

# In tracebacks and pickles, classes have the name by which users import them.
for _class in (CollError, ArgumentError, UnsupportedError, CollMemoryError, ConfigError, CancelledError, PeerError, PeerDead, PeerSilent,
               PeerLate, Excluded, MismatchError, CorruptError, AbortedError, SystemFailure, BootstrapError, InternalError,
               Communicator, UniqueId, Work, Envelope, Message):
    _class.__module__ = "coll"
log_to.__module__ = "coll"
del annotations

__all__ = [
    "ANY", "AbortedError", "ArgumentError", "BootstrapError", "Buffer", "CancelledError", "CollError", "CollMemoryError", "Communicator",
    "ConfigError", "CorruptError", "DeviceArray", "Envelope", "Event", "Excluded", "InternalError", "Message", "MismatchError", "Op", "Operation", "PeerDead", "PeerError",
    "PeerLate", "PeerSilent", "Receive", "Stream", "SystemFailure", "UniqueId", "UnsupportedError", "Work", "get_include",
    "get_library", "get_program", "group", "init", "init_all", "log_to", "progress", "raw", "settings", "unique_id", "version",
]
