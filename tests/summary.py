#!/usr/bin/env python3
"""Sum up all test programs of a meson run: N passed, N failed, N skipped.

A program counts by its own closing line (Criterion's synthesis, or the plain
line "N passed, N failed, N skipped"); one without such a line counts as one test.
A program that fails without saying which test failed adds one failure.
"""
import json
import re
import sys

CRITERION = re.compile(r"Tested: .*?(\d+).*? \| Passing: .*?(\d+).*? \| Failing: .*?(\d+).*? \| Crashing: .*?(\d+)")
PLAIN = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def count(test):
    text = ESCAPES.sub("", test.get("stdout", "") + "\n" + test.get("stderr", ""))
    ok, skip = test["result"] in ("OK", "EXPECTEDFAIL"), test["result"] == "SKIP"
    passed = failed = skipped = 0
    for tested, good, bad, crashed in CRITERION.findall(text):
        passed += int(good)
        failed += int(bad) + int(crashed)
        skipped += max(0, int(tested) - int(good) - int(bad) - int(crashed))
    for good, bad, skips in PLAIN.findall(text):
        passed += int(good)
        failed += int(bad)
        skipped += int(skips or 0)
    if passed + failed + skipped == 0:
        passed, skipped = int(ok), int(skip)
    if skip:
        why = [line for line in text.splitlines() if "skipped" in line]
        print(f"{test['name']}: {why[-1] if why else 'skipped'}")
    if not ok and not skip and failed == 0:
        failed = 1
        print(f"{test['name']}: {test['result']} (no test named)")
    return passed, failed, skipped


def main():
    with open(sys.argv[1]) as log:
        sums = [count(json.loads(line)) for line in log if line.strip()]
    passed, failed, skipped = (sum(column) for column in zip(*sums)) if sums else (0, 0, 0)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
