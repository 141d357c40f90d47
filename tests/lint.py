#!/usr/bin/env python3
"""Format (clang-format) and static checks (clang-tidy) over all sources git knows.

A source that several programs compile is looked at once, as the first of them compiles it.

usage: lint.py BUILD-DIRECTORY (with compile_commands.json)
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile


def sources():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], check=True,
                           capture_output=True, text=True).stdout.split()
    return [n for n in names if os.path.exists(n) and not n.endswith("config_rows.h")]


def check_format(names):
    bad = []
    for i in range(0, len(names), 40):
        result = subprocess.run(["clang-format", "--dry-run", "-Werror", *names[i:i + 40]], capture_output=True,
                                text=True)
        if result.returncode:
            bad.append(result.stderr)
    return bad


def tidy(build, name):
    result = subprocess.run(["clang-tidy", "--quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option", name],
                            capture_output=True, text=True)
    return result.stdout if result.returncode or "warning:" in result.stdout else ""


def check_tidy(build, names):
    with open(os.path.join(build, "compile_commands.json")) as f:
        known = {os.path.relpath(os.path.join(e["directory"], e["file"])): e for e in reversed(json.load(f))}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        with open(os.path.join(folder, "compile_commands.json"), "w") as f:
            json.dump(list(known.values()), f)
        return [r for r in pool.map(lambda n: tidy(folder, n), [n for n in names if n in known]) if r]


def main():
    names = sources()
    bad = check_format(names)
    print("\n".join(bad)[:4000], f"format: {len(names)} files, {'clean' if not bad else 'NOT clean: clang-format -i'}",
          sep="\n" if bad else "")
    warnings = check_tidy(sys.argv[1], [n for n in names if n.endswith(".c")])
    print("\n".join(warnings)[:20000], f"tidy: {'clean' if not warnings else 'NOT clean'}", sep="\n" if warnings else "")
    return 1 if bad or warnings else 0


sys.exit(main())
