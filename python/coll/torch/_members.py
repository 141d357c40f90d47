"""A group whose members change: init_process_group("coll", enable_reconfigure=True) of PyTorch 2.14 and later.

It has no members until the first reconfigure(), which names them by their handles, one for each process. A handle says who a process is, and
has a unique id that this process hosts: the members meet at the id of the first handle, so that a process which came later needs nothing of
the store of the others. Each membership is a job of its own; the old communicator lives until the new one is made, and is aborted then:
a member that was left out has that as the error of its next call. The members need not have shared a group before, and those who are left out
take no part, so this is not Communicator.shrink(), which is called by all that live.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from typing import Any

from torch._C._distributed_c10d import ErrorType
from torch.distributed import DistBackendError

from .. import _comm, _life
from .._errors import CollError, PeerLate
from ._group import ProcessGroup
from ._work import Work, done, milliseconds, seconds, translate

_HEAD = "coll"


class _Nobody:
    """In the place of the communicator, while the group has no members."""

    closed = True

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def set_timeout(self, *_: Any) -> None:
        pass

    def abort(self, *_: Any) -> None:
        pass

    @property
    def last_error(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise DistBackendError("coll: the group has no members yet, since it was made with enable_reconfigure=True: its first "
                               "reconfigure() names them")


def _read(handle: Any) -> tuple[str, bytes]:
    """Who it is, and the id that it hosts."""
    parts = handle.split(":") if isinstance(handle, str) else []
    if len(parts) != 3 or parts[0] != _HEAD:
        raise ValueError(f"coll: reconfigure: {str(handle)[:40]!r} is no handle of a group of coll")
    return parts[1], bytes.fromhex(parts[2])


class Members(ProcessGroup):
    """ProcessGroup, and reconfigure()."""

    supports_reconfigure = True

    def __init__(self, rank: int, size: int, store: Any, limit: float, name: str) -> None:
        self._token = secrets.token_hex(8)
        self._meeting: Any = None  # the id of the handle that was given out
        self._used: set[int] = set()
        super().__init__(_Nobody(rank, size), store, limit, name)

    # C++ asks by these names.

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def set_timeout(self, timeout: Any) -> None:
        with contextlib.suppress(CollError):  # a communicator that is lost; the limit is for the next
            super().set_timeout(timeout)

    _set_default_timeout = set_timeout

    def get_error(self) -> Any:
        """What the last call of the group failed with, as PyTorch sorts it."""
        error = self._comm.last_error
        if error is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if isinstance(error, PeerLate) else ErrorType.COMM_ERROR

    def get_reconfigure_handle(self) -> str:
        """For one reconfigure() of the others. Any means may carry it to them; it is a secret of the job."""
        with self._lock:
            if self._meeting is None:
                self._meeting = _comm.unique_id()
            return f"{_HEAD}:{self._token}:{bytes(self._meeting).hex()}"

    def reconfigure(self, opts: Any) -> Work:
        """The processes of the handles are the members from now on: in this order, or in one of coll's choice if they are a set. All of
        them call it, with the same handles. If it fails, the members are those of before; the next try has handles of its own."""
        limit = seconds(opts.timeout) or self._limit
        uuid, given = int(opts.uuid), opts.handles
        members = [_read(h) for h in (given if isinstance(given, (list, tuple)) else sorted(given))]
        names = [name for name, _ in members]
        if uuid in self._used:
            raise DistBackendError(f"coll: reconfigure: uuid {uuid} was already used in this group; each membership has one of its own")
        if len(set(names)) < len(names):
            raise ValueError("coll: reconfigure: a process is twice among the handles")
        if self._token not in names:
            raise ValueError("coll: reconfigure: the handle of this process is not among those given")
        rank = names.index(self._token)
        if rank == 0 and len(names) > 1 and (self._meeting is None or bytes(self._meeting) != members[0][1]):
            raise DistBackendError("coll: reconfigure: the handle of this process is an old one, which has been used; give the others a new one")
        self._used.add(uuid)
        try:
            with self._alone("reconfigure() came while a call did not end"):
                comm = self._meet(rank, members, f"{uuid}:{','.join(names)}", limit)
                self._become(comm)
        except CollError as error:
            raise translate(error, limit) from error
        return done([])

    def _meet(self, rank: int, members: list[tuple[str, bytes]], said: str, limit: float) -> Any:
        """The communicator of the members, once all have said the same."""
        settings: dict[str, Any] = {"device": "host", "create_timeout_ms": milliseconds(limit, 1000), "arrival_timeout_ms": milliseconds(limit)}
        if len(members) == 1:
            return _comm.init(0, 1, id=_comm.unique_id(), **settings)
        if rank == 0:
            place, self._meeting = self._meeting, None
        else:
            place = _comm.UniqueId(members[0][1])
        comm = _comm.init(rank, len(members), id=place, **settings)
        mine = hashlib.sha256(said.encode()).digest()
        everything = bytearray(len(mine) * len(members))
        comm.all_gather(mine, out=everything)
        if everything != mine * len(members):
            other = next(r for r in range(len(members)) if everything[r * len(mine):(r + 1) * len(mine)] != mine)
            _end(comm, "the members were given different handles, or numbers")
            raise DistBackendError(f"coll: reconfigure: rank {other} was given other handles, or another uuid, than this rank")
        return comm

    def _become(self, comm: Any) -> None:
        """Both locks are held, and nothing of the old communicator is used any more."""
        lane, self._lane = self._lane, None
        old, self._comm = self._comm, comm
        self._rank, self._size = comm.rank, comm.size
        self._forget()
        self._set_limits()
        for gone in [old] if lane is None else [lane.comm, old]:
            _end(gone, "the group was reconfigured")


def _end(comm: Any, why: str) -> None:
    if not comm.closed:
        comm.abort(why)
        with contextlib.suppress(CollError):
            comm._end(_life.UNHEARD)


__all__ = ["Members"]
