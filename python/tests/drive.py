"""Run programs of ranks one after the other. usage: drive.py [--import MODULE,...] [N | NAME=VALUE | +MODULE | PROGRAM]...

N: so many ranks have the programs that follow; NAME=VALUE: in their environment; +MODULE: the next program is skipped without it. A
program whose ranks end with 77 was skipped, and so was this one if all were.
"""

import importlib.util
import os
import sys
import time

import forked

LIMIT_S = 280


def main():
    words, ranks, env, wanted, results = sys.argv[1:], 1, {}, [], set()
    if words[0] == "--import":
        forked.preload(*words[1].split(","))
        words = words[2:]
    for word in words:
        if word.isdigit():
            ranks = int(word)
        elif word.startswith("+"):
            wanted.append(word[1:])
        elif "=" in word:
            env.update([word.split("=", 1)])
        else:
            name, began = os.path.basename(word), time.monotonic()
            missing, wanted = [m for m in wanted if importlib.util.find_spec(m) is None], []
            if missing:
                print(f"skipped: {name}: there is no module {missing[0]}", flush=True)
            statuses = [forked.SKIPPED] if missing else forked.run(ranks, forked.file(word), LIMIT_S, **env)
            results.add("skipped" if set(statuses) == {forked.SKIPPED} else "failed" if any(statuses) or None in statuses else "passed")
            print(f"{name} with {ranks} ranks: {time.monotonic() - began:.1f} s, {statuses}", flush=True)
    return 1 if "failed" in results else 0 if "passed" in results else forked.SKIPPED


forked.top(main)
