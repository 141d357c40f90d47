"""How groups come to be: from torch's store, from their parent, or from the launcher of an MPI or Slurm job."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from datetime import timedelta
from typing import Any, Iterator

import torch.distributed as dist
from torch.distributed import DistBackendError
from torch.distributed.rendezvous import _rendezvous_handlers as _handlers

from .. import _comm
from .._errors import CollError
from . import _alias, _store
from ._group import ProcessGroup, _tag_of
from ._halves import Halves
from ._members import Members
from ._work import milliseconds, seconds, translate

NAME = _alias.OWN

# The communicator by which a launch without torch's variables met, until the default group takes it. If that one is of another backend,
# groups of coll are made of it: no key of theirs is in torch's store then.
_met: Any = None


def _asked() -> tuple[dict[str, str], Any, Any]:
    """The backends of devices, device_id= and the group that torch is making for others of them, which torch tells a backend written in
    Python only by the variables of its function."""
    try:
        seen = sys._getframe(2).f_locals
    except ValueError:
        return {}, None, None
    return dict(getattr(seen.get("backend_config"), "device_backend_map", {}) or {}), seen.get("device_id"), seen.get("pg")


def _other_devices(devices: dict[str, str]) -> list[str]:
    """Those that torch makes backends for, beside a coll that stands for gloo. torch takes a group written in Python for all devices at once,
    and drops the others; so where coll is named itself, they are refused."""
    others = [d for d, b in _alias.meant(devices).items() if b != NAME]
    if NAME not in devices.values():
        return others
    unknown = [d for d, b in devices.items() if b == NAME and d not in _alias.SERVED]
    asked = ",".join(f"{d}:{b}" for d, b in devices.items())
    if unknown:
        raise ValueError(f"coll: backend '{asked}': coll serves cpu and cuda, not {', '.join(unknown)}")
    if others:
        raise ValueError(
            f"coll: backend '{asked}': a group of coll is for cpu and cuda, and torch would drop the rest without a word. Make two "
            f"groups: init_process_group('{devices[others[0]]}') for {', '.join(others)}, and dist.new_group(backend='coll')")
    return others


class _Claim:
    """Says in the store who has a rank, so that two processes that have the same one are told."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store, self.rank, self.host, self.process = store, rank, socket.gethostname(), os.getpid()
        self.mine = f"process {self.process} on host {self.host}"
        try:
            found = store.compare_set(f"coll/rank/{rank}", "", self.mine).decode()
        except (RuntimeError, NotImplementedError):  # a store of the user's own
            found = self.mine
        if found != self.mine:
            store.set(f"coll/rank/{rank}/too", self.mine)
            # One of an earlier job may have left its name in a store that lives on.
            process, host = int(found.split()[1]), found.split()[-1]
            if host == self.host and process != self.process and os.path.exists(f"/proc/{process}"):
                raise self.twice(found)

    def twice(self, other: str) -> Any:
        return DistBackendError(f"coll: two processes say that they are rank {self.rank}: {other} and {self.mine}, which is this one")

    def failed(self) -> None:
        """Nobody else has this rank, or raise."""
        for name in (f"coll/rank/{self.rank}", f"coll/rank/{self.rank}/too"):
            other = self.store.get(name).decode() if self.store.check([name]) else self.mine
            if other != self.mine:
                raise self.twice(other)

    def end(self, met: bool) -> None:
        """A store that lives on has no name for the next."""
        with contextlib.suppress(Exception):
            self.store.delete_key(f"coll/rank/{self.rank}")
            if met:
                self.store.delete_key(f"coll/rank/{self.rank}/too")


def _meet(store: Any, rank: int, size: int, limit: float) -> Any:
    """The communicator of all ranks. Two processes with one rank are told so, at the latest when the ranks have not come together."""
    if size == 1:
        return _meet_by(store, rank, size, limit)
    claim, comm = _Claim(store, rank), None
    try:
        comm = _meet_by(store, rank, size, limit)
    except CollError:
        claim.failed()
        raise
    finally:
        claim.end(comm is not None)
    return comm


def _meet_by(store: Any, rank: int, size: int, limit: float) -> Any:
    """Rank 0 puts an id into the store; the library does the rest."""
    settings: dict[str, Any] = {"device": "host", "create_timeout_ms": milliseconds(limit, 1000), "arrival_timeout_ms": milliseconds(limit)}
    if size == 1:
        return _comm.init(0, 1, id=_comm.unique_id(), **settings)
    if rank > 0:
        made = _comm.UniqueId(bytes.fromhex(store.get("coll/id").decode()))
        return _comm.init(rank, size, id=made, **settings)
    made = _comm.unique_id()
    store.set("coll/id", bytes(made).hex())
    try:
        return _comm.init(rank, size, id=made, **settings)
    finally:  # a store that outlives the group has no stale one for the next
        with contextlib.suppress(Exception):
            store.delete_key("coll/id")


def _create(options: Any, backend_options: Any = None) -> ProcessGroup:
    """For torch: the group of `options`, called by its members alone."""
    global _met
    backends, device, rest = _asked()
    others = _other_devices(backends)
    limit = seconds(options.timeout) or 1800.0
    ranks, rank, size = list(options.global_ranks_in_group), options.group_rank, options.group_size
    parent = dist.group.WORLD if ranks and dist.is_initialized() else None

    def made_of(comm: Any, *family: Any) -> ProcessGroup:
        words = comm, options.store, limit, options.group_id, *family
        return Halves(rest, others, *words) if others else ProcessGroup(*words)

    _alias.tell(rank)
    if getattr(options, "enable_reconfigure", False):
        if others:
            raise NotImplementedError(f"coll: a group whose members change has one backend, and this one has another for {', '.join(others)}")
        return Members(rank, size, options.store, limit, f"{options.group_id}")
    try:
        if isinstance(parent, ProcessGroup):
            comm = parent.make_child(ranks, f"{options.group_id}")
            return made_of(comm, parent, ranks)
        if not ranks and _met is not None and (_met.rank, _met.size) == (rank, size):
            comm, _met = _met, None
        elif parent is not None and _met is not None and (_met.rank, _met.size) == (dist.get_rank(), dist.get_world_size()):
            comm = _met.group(ranks, _tag_of(f"{options.group_id}"))
        else:
            comm = _meet(options.store, rank, size, limit)
        group = made_of(comm)
    except CollError as error:
        raise translate(error, limit) from error
    if device is not None and device.type == "cuda" and not others:
        group.open_device(device)
    return group


def register(*_: Any) -> None:
    """Make the backend known to torch. Importing coll.torch does it; so may torch, by the entry point."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    if _handlers["env"] is not _rendezvous:
        _before["env"], _handlers["env"] = _handlers["env"], _rendezvous


# ---- Launches without torch's variables ----

_before: dict[str, Any] = {}
_LAUNCHERS = ("COLL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def _rendezvous(url: str, timeout: timedelta = dist.default_pg_timeout, **words: Any) -> Iterator[tuple[Any, int, int]]:
    """env:// as torch has it. Where its variables are missing and a launcher is known, the ranks meet by that launcher."""
    known = ("RANK" in os.environ or "rank=" in url) and ("WORLD_SIZE" in os.environ or "world_size=" in url)
    if known or "MASTER_ADDR" in os.environ or not any(name in os.environ for name in _LAUNCHERS):
        yield from _before["env"](url, timeout=timeout, **words)
        return
    yield _meet_by_launcher(timeout)
    raise RuntimeError("coll: unable to perform re-rendezvous by the launcher of the job")


def _meet_by_launcher(timeout: timedelta) -> tuple[Any, int, int]:
    global _met
    try:
        comm = _comm.init(device="host", create_timeout_ms=milliseconds(timeout.total_seconds(), 1000))
        store = _store_of_host(comm, timeout) or _store.of_job(comm, timeout)
        os.environ.setdefault("LOCAL_RANK", str(comm.local_rank))
    except CollError as error:
        raise translate(error, timeout.total_seconds()) from error
    _met = comm
    return store, comm.rank, comm.size


# Files of _store_of_host() by their names. They stay open: a store opens its file by the number, for each operation.
_files: dict[str, int] = {}


def _store_of_host(comm: Any, timeout: timedelta) -> Any:
    """Where all ranks are on one host: a file that has no name, in rank 0's memory, which the others open there. Nothing listens, and no
    other user can open it. None: the ranks do not see each other's processes."""
    if comm.local_size != comm.size or not hasattr(os, "memfd_create"):
        return None
    if comm.rank == 0 and not _files:
        name = "coll-store-" + secrets.token_hex(8)
        _files[name] = os.memfd_create(name)
    name, place, part = comm.broadcast_object((*next((n, f"/proc/{os.getpid()}/fd/{fd}") for n, fd in _files.items()), secrets.token_hex(8))
                                              if comm.rank == 0 else None)
    with contextlib.suppress(OSError):
        if name not in _files and os.readlink(place).startswith(f"/memfd:{name} "):
            _files[name] = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    if not all(comm.all_gather_object(name in _files)):
        return None
    store = dist.PrefixStore(part, dist.FileStore(f"/proc/self/fd/{_files[name]}"))
    store.set_timeout(timeout)
    return store


__all__ = ["register"]
