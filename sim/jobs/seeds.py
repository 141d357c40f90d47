#!/usr/bin/env python3
"""The programs on the simulated machine with many seeds, which are other orders of events.

usage: seeds.py BUILD_ROOT [--seeds A..B] [PART-OF-A-PROGRAM'S-NAME]

Prints what fails with its seed; exit status 1 if anything did."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys


def one(build, test, seed):
    done = subprocess.run(test["cmd"], cwd=build, env=dict(os.environ, SIM_SEED=str(seed)), capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip().split("\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build"), p.add_argument("part", nargs="?", default="")
    p.add_argument("--seeds", default="1..100")
    o = p.parse_intermixed_args()
    first, last = (int(n) for n in o.seeds.split(".."))
    tests = json.loads(subprocess.run(["meson", "introspect", o.build, "--tests"], capture_output=True, text=True,
                                      check=True).stdout)
    tests = [t for t in tests if any(s.endswith("sim") for s in t["suite"]) and o.part in t["name"]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {(t["name"], seed): pool.submit(one, o.build, t, seed) for seed in range(first, last + 1) for t in tests}
        for (name, seed), job in jobs.items():
            status, lines = job.result()
            if status:
                failed += 1
                print(f"SIM_SEED={seed} {name}: status {status}")
                print("\n".join("  " + line[:300] for line in lines if "failed" in line or "simulator" in line or "FAIL" in line))
    print(f"{len(jobs) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not jobs else 0


sys.exit(main())
