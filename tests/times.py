#!/usr/bin/env python3
"""Seconds of a run of the suite, by family of tests: a suite of meson and the first word of the name. Beside them the sum
and, last, how long it took from the start of the first test to the end of the last. With two logs: both beside each other.

usage: times.py [--total] LOG [LOG]     (build/release/meson-logs/testlog.json; --total: the last line alone)
"""
import json
import re
import sys


def read(path):
    with open(path) as log:
        return [json.loads(line) for line in log if line.strip()]


def family(test):
    suite, name = test["name"].split(" / ")
    return suite.split(":")[-1].removesuffix("+more"), re.split("[-_]", name)[0]


def families(tests):
    """The number of tests and their seconds, by family. Unit and house tests are one family each."""
    sums = {}
    for test in tests:
        suite, word = family(test)
        count, seconds = sums.get(key := (suite, "" if suite in ("unit", "house") else word), (0, 0.0))
        sums[key] = count + 1, seconds + test["duration"]
    return sums


def whole(tests):
    return max(t["starttime"] + t["duration"] for t in tests) - min(t["starttime"] for t in tests)


def total(tests):
    slowest = max(tests, key=lambda t: t["duration"])
    return (f"{len(tests)} tests, {sum(t['duration'] for t in tests):.0f} s in all, {whole(tests):.0f} s from the first start to the last "
            f"end; the longest: {slowest['name'].split(' / ')[-1]}, {slowest['duration']:.0f} s")


def main():
    paths = [a for a in sys.argv[1:] if a != "--total"]
    if not 1 <= len(paths) <= 2:
        sys.exit(__doc__)
    runs = [read(p) for p in paths]
    if "--total" not in sys.argv:
        sums = [families(tests) for tests in runs]
        print(f"{'family':40}" + "".join(f"{'tests':>8}{'seconds':>10}" for _ in runs))
        for key in sorted({k for s in sums for k in s}, key=lambda k: -max(s.get(k, (0, 0.0))[1] for s in sums)):
            print(f"{' '.join(key).strip():40}" + "".join(f"{s.get(key, (0, 0.0))[0]:8}{s.get(key, (0, 0.0))[1]:10.1f}" for s in sums))
    for tests in runs:
        print(total(tests))


main()
