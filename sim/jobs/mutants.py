#!/usr/bin/env python3
"""Seeded defects against tests: do the programs on the simulated machine find what the same programs with real
processes find?

usage: mutants.py SOURCE_ROOT BUILD_ROOT [--seed S] [--count N] [--limit MINUTES] [--only N,N] [--list]

Takes N places of the control plane, watchdog, matching, the core, calls and calls in flight, by the seed, and plants a
defect in each: a condition is turned, a statement is left out, a comparison moves by one. All are compiled into one
library; the variable COLL_MUTANT of the environment chooses one at start. Each runs until its first failure against the
tests on the simulated machine and against those with real processes. Exit status 1 if the first found fewer."""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time

FOLDERS = ["control", "watch", "match", "core", "call", "inflight", "progress"]
# Files about devices: neither set of tests has one.
NOT = re.compile(r"_test\.c$|/(stage|capture|copier|launch|region|mapper)\w*\.c$|/(memory|ops)\.c$")
STATEMENT = re.compile(r"^(\t+)((?:[a-z_]\w*(?:->|\.|\[[^\]]*\])?)+ ?(?:=|\+=|-=|\|=|\() ?.*;)$|"
                       r"^(\t+)([\w>.\-\[\]]+(?:\+\+|--);)$")
CONDITION = re.compile(r"^(\t+(?:\} else )?(?:if|while) \()(.*)(\)(?: \{)?)$")
COMPARE = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ", " && ": " || ",
           " || ": " && "}
SILENT = re.compile(r"coll_log|coll_control_say|snprintf|assert|free\(|mutex|planted|"
                    r"^\t+(return|goto|break|continue|case|default)\b")

NEW = ["sim-faults tcp", "sim-causes tcp", "sim-members shm", "sim-failures mixed", "sim-timeouts loop off", "sim-mismatch tcp",
       "sim-lawful loop", "sim-slow-members loop on", "sim-interrupt loop on", "sim-late-end tcp", "sim-tags-death mixed",
       "sim-groups mixed", "sim-abort-cases loop", "sim-members tcp", "sim-failures shm", "sim-failures tcp",
       "sim-causes shm", "sim-mismatch shm", "sim-lawful tcp", "sim-timeouts loop on", "sim-slow-members loop off",
       "sim-interrupt loop off", "sim-late-end shm", "sim-groups-random mixed", "sim-tags-death shm", "sim-tags-death tcp",
       "sim-async-operations loop on", "sim-async-errors loop off", "sim-async-notify loop on"]
OLD = ["jobs " + program for program in [
    "causes tcp", "members shm", "failures tcp", "timeouts loop on", "mismatch tcp", "lawful shm",
    "slow_members loop on", "interrupt loop on", "late_end tcp", "tags_death mixed", "members tcp", "failures shm",
    "causes shm", "mismatch shm", "lawful tcp", "timeouts shm off", "slow_members shm off", "interrupt shm off",
    "late_end shm", "timeouts tcp on", "slow_members tcp on"]]
TARGETS = sorted({"sim/jobs/" + t.split()[0] for t in NEW} | {"tests/" + t.split()[0] for t in OLD})
SLOWEST_S = {"new": 60, "old": 300}


def candidates(root):
    found = []
    for name in FOLDERS:
        base = os.path.join(root, "src", name)
        for file in sorted(os.listdir(base)) if os.path.isdir(base) else []:
            path = f"src/{name}/{file}"
            if not file.endswith(".c") or NOT.search(path):
                continue
            body = False
            for number, line in enumerate(open(os.path.join(root, path)).read().split("\n")):
                body = line == "{" or body and line != "}"
                if not body or SILENT.search(line):
                    continue
                condition, statement = CONDITION.match(line), STATEMENT.match(line)
                if condition and condition[2].count("(") == condition[2].count(")"):
                    found.append((name, path, number, "turned"))
                    found += [(name, path, number, was) for was in COMPARE if condition[2].count(was) == 1]
                elif statement and line.count("(") == line.count(")"):
                    found.append((name, path, number, "left out"))
    return found


def plant(line, how, n):
    condition = CONDITION.match(line)
    if how == "left out":
        indent = re.match(r"\t+", line)[0]
        return f"{indent}{{ if (coll_mutant != {n}) {line.strip()} }}"
    other = f"!({condition[2]})" if how == "turned" else condition[2].replace(how, COMPARE[how])
    return f"{condition[1]}coll_mutant == {n} ? ({other}) : ({condition[2]}){condition[3]}"


def describe(m):
    what = {"turned": "condition turned", "left out": "left out"}.get(m["how"])
    return f'{m["path"]}:{m["line"] + 1} {what or m["how"].strip() + " -> " + COMPARE[m["how"]].strip()}: {m["text"].strip()[:70]}'


def compile_patched(o, path, chosen):
    """The object of the patched copy, or None where the compiler refuses it."""
    lines = open(os.path.join(o.root, path)).read().split("\n")
    for m in chosen:
        lines[m["line"]] = plant(lines[m["line"]], m["how"], m["n"])
    copy = os.path.join(o.out, path)
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    with open(copy, "w") as f:
        f.write("extern int coll_mutant;\n#line 1\n" + "\n".join(lines))
    command = next(c for c in o.commands if os.path.abspath(os.path.join(c["directory"], c["file"])) == os.path.join(o.root, path)
                   and c["output"].startswith("libcoll_core"))
    words = shlex.split(command["command"])
    words = [w for w in words if w not in ("-Werror", "ccache")]
    words[words.index("-o") + 1] = copy[:-2] + ".o"
    words[words.index("-c") + 1] = copy
    for flag in ("-MD", ):
        if flag in words:
            words.remove(flag)
    for flag in ("-MQ", "-MF"):
        if flag in words:
            at = words.index(flag)
            del words[at:at + 2]
    done = subprocess.run(words + ["-w"], cwd=command["directory"], capture_output=True, text=True)
    return copy[:-2] + ".o" if done.returncode == 0 else None


def choose(o):
    """N mutants that compile: folders in turn, places by the seed."""
    rng, all_of = random.Random(o.seed), candidates(o.root)
    rng.shuffle(all_of)
    chosen, objects, places = [], {}, set()
    names = [n for n in FOLDERS if any(c[0] == n for c in all_of)]
    while len(chosen) < o.count and all_of:
        name = names[len(chosen) % len(names)]
        at = next((i for i, c in enumerate(all_of) if c[0] == name), 0)
        _, path, line, how = all_of.pop(at)
        if (path, line) in places:
            continue
        text = open(os.path.join(o.root, path)).read().split("\n")[line]
        m = {"n": len(chosen) + 1, "path": path, "line": line, "how": how, "text": text}
        built = compile_patched(o, path, [c for c in chosen if c["path"] == path] + [m])
        if built:
            chosen.append(m)
            objects[path] = built
            places.add((path, line))
    for path in objects:
        compile_patched(o, path, [c for c in chosen if c["path"] == path])
    return chosen, objects


def link(o, objects):
    """The library with the patched objects, and all programs over it."""
    archive = os.path.join(o.out, "libcoll_mutants.a")
    members = subprocess.run(["ar", "t", "libcoll_core.a"], cwd=o.build, capture_output=True, text=True, check=True).stdout.split()
    by_source = {"libcoll_core.a.p/" + path.replace("/", "_") + ".o": at for path, at in objects.items()}
    switch = os.path.join(o.out, "switch.c")
    with open(switch, "w") as f:
        f.write("#include <stdlib.h>\nint coll_mutant;\n__attribute__((constructor(101))) static void choose(void)\n{\n"
                "\tconst char *n = getenv(\"COLL_MUTANT\");\n\n\tcoll_mutant = n ? atoi(n) : 0;\n}\n")
    subprocess.run(["cc", "-c", "-o", switch[:-2] + ".o", switch], check=True)
    missing = set(by_source) - set(members)
    if missing:
        sys.exit(f"no such objects in libcoll_core.a: {sorted(missing)}")
    if os.path.exists(archive):
        os.remove(archive)
    subprocess.run(["ar", "csrDT", archive] + [by_source.get(m, os.path.join(o.build, m)) for m in members] +
                   [switch[:-2] + ".o"], check=True)
    for target in TARGETS:
        commands = subprocess.run(["ninja", "-C", o.build, "-t", "commands", target], capture_output=True, text=True,
                                  check=True).stdout.strip().split("\n")
        words = shlex.split(commands[-1])
        words[words.index("-o") + 1] = os.path.join(o.out, os.path.basename(target))
        words = [archive if w == "libcoll_core.a" else w for w in words if w != "ccache"]
        subprocess.run(words, cwd=o.build, check=True)


def run_one(o, kind, test, n):
    """Whether the test fails with this mutant."""
    words = test.split()
    env = dict(os.environ, COLL_MUTANT=str(n), COLL_DEBUG="error")
    process = subprocess.Popen([os.path.join(o.out, words[0])] + words[1:], env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(SLOWEST_S[kind]) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def hunt(o, kind, n):
    """The first test that fails with it (and the seconds until then), or None; out of time: "?"."""
    begun, tests = time.monotonic(), NEW if kind == "new" else OLD
    for test in tests:
        if time.monotonic() > o.until:
            return "?", 0.0
        # What fails without a defect once in a while, on a busy machine, is looked at twice.
        if run_one(o, kind, test, n) and (kind == "new" or run_one(o, kind, test, n)):
            return test, time.monotonic() - begun
    return None, time.monotonic() - begun


def main():
    p = argparse.ArgumentParser()
    p.add_argument("root"), p.add_argument("build")
    p.add_argument("--seed", type=int, default=1), p.add_argument("--count", type=int, default=30)
    p.add_argument("--limit", type=float, default=90), p.add_argument("--only", default="")
    p.add_argument("--list", action="store_true"), p.add_argument("--kinds", default="new,old")
    o = p.parse_args()
    o.root, o.build = os.path.abspath(o.root), os.path.abspath(o.build)
    o.out = os.path.join(o.build, f"mutants-{o.seed}")
    o.until = time.monotonic() + 60 * o.limit
    o.commands = json.load(open(os.path.join(o.build, "compile_commands.json")))
    print(f"seed {o.seed}, {o.count} mutants, at most {o.limit:g} minutes", flush=True)
    subprocess.run(["ninja", "-C", o.build, "libcoll_core.a"] + TARGETS, stdout=subprocess.DEVNULL, check=True)
    chosen, objects = choose(o)
    if o.list:
        print("\n".join(f'{m["n"]:3} {describe(m)}' for m in chosen))
        return 0
    link(o, objects)
    for kind in o.kinds.split(","):
        tests = NEW if kind == "new" else OLD
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as pool:
            fails = list(pool.map(lambda t: run_one(o, kind, t, 0) and run_one(o, kind, t, 0), tests))
        broken = [t for t, failed in zip(tests, fails) if failed]
        if broken:
            print(f"fail without a defect, so they prove nothing: {broken}", flush=True)
            for t in broken:
                (NEW if kind == "new" else OLD).remove(t)
    only = {int(n) for n in o.only.split(",")} if o.only else None
    found, judged = {"new": 0, "old": 0}, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as pool:
        jobs = [(m, {k: pool.submit(hunt, o, k, m["n"]) for k in o.kinds.split(",")})
                for m in chosen if not only or m["n"] in only]
        for m, results in jobs:
            said = []
            for kind, job in results.items():
                test, seconds = job.result()
                found[kind] += test not in (None, "?")
                said.append(f'{kind}: {test + f" ({seconds:.1f} s)" if test else "not found"}')
            judged += not any(job.result()[0] == "?" for job in results.values())
            print(f'{m["n"]:3} {describe(m)}\n      {"; ".join(said)}', flush=True)
    print(f'seed {o.seed}: of {len(jobs)} mutants the simulated machine found {found["new"]}, real processes {found["old"]}; '
          f'{len(jobs) - judged} were not judged in time')
    return 1 if found["new"] < found["old"] or not judged else 0


sys.exit(main())
