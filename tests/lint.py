#!/usr/bin/env python3
"""Format (clang-format) and static checks (clang-tidy) over all sources git knows.

A source that several programs compile is looked at once, as the first of them compiles it. What was clean is not looked at again while
it, its headers, its command, .clang-tidy and the tool are the same: BUILD-DIRECTORY/lint has a file for each.

usage: lint.py BUILD-DIRECTORY (with compile_commands.json)
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile


def sources():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], check=True,
                           capture_output=True, text=True).stdout.split()
    return [n for n in names if os.path.exists(n) and not n.endswith("config_rows.h")]


def in_parallel(function, items):
    """What it says of each, where it says something."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [r for r in pool.map(function, items) if r]


def unformatted(names):
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *names], capture_output=True, text=True)
    return result.stderr if result.returncode else ""


@functools.cache
def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).digest()


def compiled_from(build):
    """Source -> all files that its objects were last compiled from."""
    found = {}
    for block in subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True).stdout.split("\n\n"):
        files = [os.path.normpath(os.path.join(build, line.strip())) for line in block.splitlines()[1:]]
        if files:
            found.setdefault(files[0], set()).update(files)
    return found


def check_tidy(build, names):
    """What clang-tidy says of those that changed, and the number of the others."""
    with open(os.path.join(build, "compile_commands.json")) as f:
        known = {os.path.relpath(os.path.join(e["directory"], e["file"])): e for e in reversed(json.load(f))}
    done, files = os.path.join(build, "lint"), compiled_from(build)
    os.makedirs(done, exist_ok=True)
    tool = subprocess.run(["clang-tidy", "--version"], capture_output=True).stdout + digest(".clang-tidy")

    def clean(name):
        """The file that says so; None: its headers are not known."""
        used = files.get(name)
        if not used or not all(map(os.path.exists, used)):
            return None
        key = hashlib.sha256(b"".join([tool, known[name]["command"].encode(), *map(digest, sorted(used))]))
        return os.path.join(done, key.hexdigest())

    def tidy(name):
        result = subprocess.run(["clang-tidy", "--quiet", "-p", folder, "--extra-arg=-Wno-unknown-warning-option", name],
                                capture_output=True, text=True)
        if result.returncode or "warning:" in result.stdout:
            return result.stdout + result.stderr
        if mark := clean(name):
            open(mark, "w").close()
        return ""

    names = [n for n in names if n in known]
    changed = [n for n in names if not os.path.exists(clean(n) or "")]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "compile_commands.json"), "w") as f:
            json.dump(list(known.values()), f)
        return in_parallel(tidy, changed), len(names) - len(changed)


def main():
    names = sources()
    bad = in_parallel(unformatted, [names[i:i + 40] for i in range(0, len(names), 40)])
    print("\n".join(bad)[:4000], f"format: {len(names)} files, {'clean' if not bad else 'NOT clean: clang-format -i'}",
          sep="\n" if bad else "")
    warnings, kept = check_tidy(sys.argv[1], [n for n in names if n.endswith(".c")])
    print("\n".join(warnings)[:20000], f"tidy: {'clean' if not warnings else 'NOT clean'}, {kept} files are as they were",
          sep="\n" if warnings else "")
    return 1 if bad or warnings else 0


sys.exit(main())
