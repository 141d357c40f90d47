#!/usr/bin/env python3
"""Fuzz targets by libFuzzer (clang): builds them in build/fuzz, runs each for some seconds, prints for each how many inputs
were run, how many edges of the code they reached, and what was found. A finding, or fewer than FLOOR runs, is a failure;
the input of a finding is kept in build/fuzz/found.

usage: run.py [SECONDS [TARGET...]]       20 seconds each; corpora grow in build/fuzz/corpus"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD, CORPUS = os.path.join(ROOT, "build", "fuzz"), os.path.join(ROOT, "tests", "fuzz", "corpus")
FLOOR = 5  # runs a second, whatever else this machine does
MEMORY_MB = 64  # the largest allocation that an input may cause
OPTIONS = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Doptimization=1", "-Ddebug=true", "-Dfuzz=true",
           "-Dpython=disabled", "-Dcuda=disabled", "-Dpeers=disabled"]


def build():
    """The programs; None where clang or its libFuzzer is missing."""
    has = subprocess.run(["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", os.devnull], capture_output=True, text=True,
                         input="#include <stddef.h>\n#include <stdint.h>\nint LLVMFuzzerTestOneInput(const uint8_t *d, size_t n);\n"
                         "int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { return d && n ? 0 : 0; }\n")
    if has.returncode:
        return None
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        subprocess.run(["meson", "setup", BUILD, ROOT, *OPTIONS], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "CC": "clang"})
    targets = [f"tests/fuzz/{p}-targets" for p in ("fuzz", "fuzz-rdma")]
    known = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    targets = [t for t in targets if f"\n{t}:" in "\n" + known]
    subprocess.run(["ninja", "-C", BUILD, *targets], check=True, stdout=subprocess.DEVNULL)
    return [os.path.join(BUILD, t) for t in targets]


def names(program):
    said = subprocess.run([program], capture_output=True, text=True, env={**os.environ, "COLL_FUZZ": ""}).stderr
    return said.split("one of:")[1].split()


def fuzz(program, target, seconds):
    """True if nothing was found."""
    grown, found = os.path.join(BUILD, "corpus", target), os.path.join(BUILD, "found")
    os.makedirs(grown, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    r = subprocess.run([program, f"-max_total_time={seconds}", f"-malloc_limit_mb={MEMORY_MB}", "-rss_limit_mb=2048",
                        "-timeout=60", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={found}/{target}-", grown,
                        os.path.join(CORPUS, target)], capture_output=True, text=True, errors="replace",
                       env={**os.environ, "COLL_FUZZ": target, "HWLOC_PLUGINS_PATH": "/nonexistent"})
    runs = int((re.findall(r"number_of_executed_units: (\d+)", r.stderr) or ["0"])[-1])
    edges = int((re.findall(r"cov: (\d+)", r.stderr) or ["0"])[-1])
    first = re.search(r"(ERROR: .*|.*runtime error: .*|.*does not hold: .*)", r.stderr)
    good = r.returncode == 0 and runs >= FLOOR * seconds
    verdict = "nothing found" if r.returncode == 0 else f"FOUND: {first.group(0) if first else r.stderr[-300:]}"
    print(f"{'ok  ' if good else 'FAIL'} {target:18} {runs:9} runs {edges:6} edges  {verdict}", flush=True)
    if r.returncode:
        print("\n".join("     " + line for line in r.stderr.splitlines()[-60:]))
    elif not good:
        print(f"     fewer than {FLOOR * seconds} runs")
    return good


def without_clang(seconds):
    """What there is without libFuzzer: damaged copies of the corpora, no coverage."""
    print("no clang with libFuzzer (package libclang-rt-dev): damaged copies of the corpora instead, without coverage")
    program = os.path.join(ROOT, "build", "release", "tests", "fuzz", "fuzz-files")
    return subprocess.run([program, CORPUS, str(20 * seconds)]).returncode == 0


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    programs, good, done = build(), True, 0
    if programs is None:
        return 0 if without_clang(seconds) else 1
    for program in programs:
        for target in names(program):
            if not sys.argv[2:] or target in sys.argv[2:]:
                good = fuzz(program, target, seconds) and good
                done += 1
    print(f"{done} targets, {seconds} s each")
    return 0 if good and done else 1


sys.exit(main())
