"""python/wheel_backend.py by itself: what is missing is said in one sentence, and addresses come into the metadata once there is one. The build
that it hands on to is meson-python's, which this test does not need.

usage: wheel_backend.py SOURCE"""

import contextlib
import os
import sys
import sysconfig
import tempfile
import types
import zipfile

SOURCE = os.path.abspath(sys.argv[1])
os.chdir(SOURCE)
sys.path.insert(0, os.path.join(SOURCE, "python"))
sys.dont_write_bytecode = True
# Its names, for the import; nothing of them is called.
sys.modules["mesonpy"] = types.ModuleType("mesonpy")
for _name in ("build_sdist", "get_requires_for_build_sdist", "get_requires_for_build_wheel", "build_editable", "build_wheel"):
    setattr(sys.modules["mesonpy"], _name, None)
import wheel_backend  # noqa: E402

METADATA, RECORD = "a-1.dist-info/METADATA", "a-1.dist-info/RECORD"


def check(condition, *facts):
    if not condition:
        raise AssertionError("\n".join(map(str, facts)))


def sentence(**env):
    """What a build says with these variables."""
    kept = dict(os.environ)
    os.environ.update(env)
    try:
        wheel_backend.build_wheel("/nonexistent")
    except SystemExit as end:
        return str(end.code)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return ""


def missing():
    """A compiler, the C library's headers, Python's."""
    with tempfile.TemporaryDirectory() as folder:
        refuses = os.path.join(folder, "cc")
        with open(refuses, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nexit 1\n")
        os.chmod(refuses, 0o755)
        said = [sentence(CC="/nonexistent/cc"), sentence(CC="", PATH="/nonexistent"), sentence(CC=refuses)]
    include, sysconfig.get_path = sysconfig.get_path, lambda *_: "/nonexistent"
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, sysconfig, "get_path", include)
        said.append(sentence(CC="cc"))
    for text, wanted in zip(said, ["/nonexistent/cc (of CC) is not there", "there is no C compiler", "headers of the C library", "keeps it in /nonexistent"]):
        check(text.startswith("libcoll: ") and wanted in text and "apt install gcc" in text, wanted, text)


def addresses():
    """None while there is no setting; then four lines, and a RECORD that agrees."""
    check(wheel_backend._urls() == [], wheel_backend._urls())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("pyproject.toml", "w", encoding="utf-8") as f:
            f.write('[tool.libcoll]\nurl = "https://host.invalid/coll/"\n')
        lines = wheel_backend._urls()
        os.chdir(SOURCE)
        wheel = os.path.join(folder, "a-1-py3-none-any.whl")
        with zipfile.ZipFile(wheel, "w") as made:
            made.writestr(METADATA, "Metadata-Version: 2.1\nName: a\n\nbody\n")
            made.writestr(RECORD, f"{METADATA},sha256=x,1\n{RECORD},,\n")
        wheel_backend._add_urls(wheel, lines)
        with zipfile.ZipFile(wheel) as made:
            text, record = made.read(METADATA).decode(), made.read(RECORD).decode()
    check(len(lines) == 4 and "Project-URL: Homepage, https://host.invalid/coll" in lines, lines)
    check(text == "Metadata-Version: 2.1\nName: a\n" + "\n".join(lines) + "\n\nbody\n", text)
    check(f",{len(text)}\n" in record and "sha256=x" not in record and record.endswith(f"{RECORD},,\n"), record)


missing()
addresses()
print("2 passed, 0 failed, 0 skipped")
