"""The secret of a job: out of the environment once it is read, and, under torchrun on several hosts, from its agent's store."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from typing import Any

# From the store, for all communicators that this process makes.
_key: str | None = None
# The library keeps a COLL_JOB_KEY of this process, which is no more in the environment.
_kept = False


def forget() -> None:
    """The library has read COLL_JOB_KEY and keeps it: Python's copy of the environment is passed to children and written to logs."""
    global _kept
    if os.environ.get("COLL_JOB_KEY"):
        _kept = True
        os.environ["COLL_JOB_KEY"] = ""  # in its place: another thread may be reading the variables


def _given(settings: dict[str, Any]) -> dict[str, str]:
    """What the library reads: its file of settings, then the environment, then what the caller says."""
    given = {}
    with contextlib.suppress(OSError), open(os.environ.get("COLL_CONFIG_FILE", ""), encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition("=")
            given[name.strip()] = value.strip()
    said = {f"COLL_{name.upper()}": str(int(value)) if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return {**given, **os.environ, **said}


def _has_another(settings: dict[str, Any]) -> bool:
    """In the order of the library. What is wrong with a source is for the library to say."""
    none = {"COLL_JOB_KEY": (), "COLL_KEY_FD": ("-1",), "COLL_KEY_FILE": (), "COLL_INSECURE": ("0", "off", "no", "false")}
    given = _given(settings)
    folders = given.get("XDG_CONFIG_HOME", ""), os.path.join(given.get("HOME", ""), ".config")
    return _kept or bool(os.environ.get("COLL_JOB_KEY")) or \
        any(given.get(name) and given[name].lower() not in off for name, off in none.items()) or \
        any(os.path.exists(os.path.join(folder, "coll", "key")) for folder in folders if folder.startswith("/"))


def of_store(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings; with a key if torchrun has started the job on several hosts and its agent's store is the only place that could
    have a secret. The key is random, and equal on all ranks: whoever comes first puts it there."""
    global _key
    launch = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    here = launch[2] == launch[3] or launch[0] in ("localhost", "::1") or launch[0].startswith("127.")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() != "true" or "" in launch or here or "COLL_RANK" in os.environ or \
            _has_another(settings):
        return settings
    if _key is None:
        try:
            from torch.distributed import TCPStore
        except ImportError:
            return settings
        store = TCPStore(launch[0], int(launch[1]), is_master=False)
        _key = store.compare_set("coll/launch-secret", "", secrets.token_hex(16)).decode()
        if os.environ.get("RANK") == "0":
            logging.getLogger("coll").warning(
                "coll: the secret of this job is in torchrun's store, and as closed as MASTER_PORT (%s:%s): a key in ~/.config/coll/key "
                "(mode 600) on each host would be closed to all other users", launch[0], launch[1])
    return {**settings, "job_key": _key}


__all__ = ["forget", "of_store"]
