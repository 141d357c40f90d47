"""The backend that pip calls: meson-python, told that a free-threaded Python has no limited API; one sentence where the compiler or Python.h is
missing; and the project's addresses in the metadata, once [tool.libcoll] of pyproject.toml has one."""

import base64
import csv
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from typing import Any

from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel
from mesonpy import build_editable as _build_editable
from mesonpy import build_wheel as _build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
           "get_requires_for_build_wheel"]

_ADVICE = ("On Debian or Ubuntu: apt install gcc libc6-dev python3-dev. A machine without a compiler installs a wheel that another one "
           "has built: docs/guide/python.md, \"Building\"")


# ---- What is missing ----

def _is_cross(settings: dict[Any, Any]) -> bool:
    return "--cross-file" in str(settings.get("setup-args", "")) or "--native-file" in str(settings.get("setup-args", ""))


def _missing() -> str | None:
    """Why nothing can be compiled here. None: it can."""
    asked = shlex.split(os.environ.get("CC", "")) or next(([c] for c in ("cc", "gcc", "clang") if shutil.which(c)), [])
    if not asked or shutil.which(asked[0]) is None:
        return f"the C compiler {asked[0]} (of CC) is not there" if asked else "it is built from C, and there is no C compiler (cc, gcc or clang)"
    include = sysconfig.get_path("include")
    for header, why in [("stdio.h", "the headers of the C library are missing"),
                        ("Python.h", f"Python.h is missing: Python {sysconfig.get_python_version()} keeps it in {include}")]:
        told = subprocess.run([*asked, f"-I{include}", "-E", "-x", "c", "-o", os.devnull, "-"], input=f"#include <{header}>\n", text=True,
                              capture_output=True, check=False)
        if told.returncode != 0:
            return why
    return None


def _check(settings: dict[Any, Any]) -> None:
    why = None if _is_cross(settings) else _missing()
    if why is not None:
        sys.exit(f"libcoll: {why}. {_ADVICE}.")


# ---- The project's addresses ----

def _urls() -> list[str]:
    """Lines of the metadata. One setting: the address of the project's pages. Unset, as long as it has none: no line."""
    with open("pyproject.toml", "rb") as f:
        url = tomllib.load(f).get("tool", {}).get("libcoll", {}).get("url", "").rstrip("/")
    return [f"Project-URL: Homepage, {url}", f"Project-URL: Changelog, {url}/blob/main/CHANGELOG.md", f"Project-URL: Documentation, {url}/tree/main/docs",
            f"Project-URL: Issues, {url}/issues"] if url else []


def _with_lines(metadata: str, lines: list[str]) -> str:
    """Behind the other headers."""
    head, gap, body = metadata.partition("\n\n")
    return "\n".join([head, *lines]) + gap + body


def _record(old: str, name: str, data: bytes) -> str:
    """RECORD with another hash and length of one file."""
    rows = [row for row in csv.reader(io.StringIO(old)) if row]
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([name, f"sha256={digest}", len(data)] if row[0] == name else row for row in rows)
    return out.getvalue()


def _add_urls(wheel: str, lines: list[str]) -> None:
    with zipfile.ZipFile(wheel) as old:
        files = [(info, old.read(info)) for info in old.infolist()]
    name = next(info.filename for info, _ in files if info.filename.endswith(".dist-info/METADATA"))
    data = _with_lines(next(data for info, data in files if info.filename == name).decode(), lines).encode()
    with zipfile.ZipFile(wheel + ".new", "w", zipfile.ZIP_DEFLATED) as new:
        for info, content in files:
            if info.filename == name:
                content = data
            elif info.filename.endswith(".dist-info/RECORD"):
                content = _record(content.decode(), name, data).encode()
            new.writestr(info, content)
    os.replace(wheel + ".new", wheel)


# ---- What pip calls ----

def _settings(given: dict[Any, Any] | None) -> dict[Any, Any]:
    settings = dict(given or {})
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        setup = settings.get("setup-args", [])
        settings["setup-args"] = [*([setup] if isinstance(setup, str) else setup), "-Dpython.allow_limited_api=false"]
    return settings


def build_wheel(wheel_directory: str, config_settings: dict[Any, Any] | None = None, metadata_directory: str | None = None) -> str:
    settings = _settings(config_settings)
    _check(settings)
    made = str(_build_wheel(wheel_directory, settings, metadata_directory))
    lines = _urls()
    if lines:
        _add_urls(os.path.join(wheel_directory, made), lines)
    return made


def build_editable(wheel_directory: str, config_settings: dict[Any, Any] | None = None, metadata_directory: str | None = None) -> str:
    settings = _settings(config_settings)
    _check(settings)
    return str(_build_editable(wheel_directory, settings, metadata_directory))


get_requires_for_build_editable = get_requires_for_build_wheel
