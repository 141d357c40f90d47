"""The backend that pip calls: meson-python, told that a free-threaded Python has no limited API."""

import sysconfig
from typing import Any

from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel
from mesonpy import build_editable as _build_editable
from mesonpy import build_wheel as _build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
           "get_requires_for_build_wheel"]


def _settings(given: dict[Any, Any] | None) -> dict[Any, Any] | None:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return given
    settings = dict(given or {})
    setup = settings.get("setup-args", [])
    settings["setup-args"] = [*([setup] if isinstance(setup, str) else setup), "-Dpython.allow_limited_api=false"]
    return settings


def build_wheel(wheel_directory: str, config_settings: dict[Any, Any] | None = None, metadata_directory: str | None = None) -> str:
    return str(_build_wheel(wheel_directory, _settings(config_settings), metadata_directory))


def build_editable(wheel_directory: str, config_settings: dict[Any, Any] | None = None, metadata_directory: str | None = None) -> str:
    return str(_build_editable(wheel_directory, _settings(config_settings), metadata_directory))


get_requires_for_build_editable = get_requires_for_build_wheel
