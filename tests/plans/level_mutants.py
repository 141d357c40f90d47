#!/usr/bin/env python3
"""Mistakes in the generators that read the layout, one at a time: each must be refused by the proofs and counts.

level_mutants.py COMPILER SOURCE_ROOT BUILD_ROOT LIBRARY...

Each mutant is one substitution in one source file. The mutated file is compiled and linked, before the library's own
copy of it, with the small sweep of plan-layouts. A mutant that does not compile or whose text is not found is a
failure, so the list cannot go stale unnoticed.
"""
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

MUTANTS = [
    ("the wrong lane of a child", "levels.c", "(uint64_t)j * v->lanes[stage] + count - 1) / count", "(uint64_t)j * v->lanes[stage]) / count"),
    ("an owner beside the right one", "levels.c", "child_of(v, stage, lane_at(v, stage, chunk), count)",
     "child_of(v, stage, (lane_at(v, stage, chunk) + (stage + 1 == v->stages)) % v->lanes[stage], count)"),
    ("stages in the wrong order of chunks", "levels.c", "for (uint32_t i = v->outer; i < stage; i++)",
     "for (uint32_t i = stage + 1; i < v->stages; i++)"),
    ("blocks in the order of ranks", "levels.c", "v->block_at[next++] = block - 1;", "v->block_at[next] = (block + (next > 1)) % n, next++;"),
    ("a run that does not wrap", "levels.c", "to > count ? end - low + high - r->base : high - low",
     "to > count ? end - low : high - low"),
    ("the second piece of a run is lost", "levels.c", "piece < (to > count ? 2 : 1)", "piece < 1"),
    ("outermost stage first", "circulant.c", "for (uint32_t stage = v->stages; stage-- > v->outer;) {",
     "for (uint32_t at = v->outer, stage = at; at < v->stages; stage = ++at) {"),
    ("gathers from the inside outwards", "circulant.c",
     "for (uint32_t stage = v->outer; stage < v->stages; stage++) {\n\t\tuint32_t nrings;",
     "for (uint32_t stage = v->stages; stage-- > v->outer;) {\n\t\tuint32_t nrings;"),
    ("a sum is taken for raw input", "circulant.c", "untouched = untouched && v->rings[0].count == 1;", "(void)v;"),
    ("final one stage early", "circulant.c", "final && stage == v->outer", "final && stage + 1 == v->stages"),
    ("an odd block stays raw", "circulant.c", "copy(r, b, touched, acc);", "(void)copy;"),
    ("round the ring the wrong way", "circulant.c", "send(&v->rings[k], b, 1, i == n - 1 ? own : acc, i, 1);",
     "send(&v->rings[k], b, -1, i == n - 1 ? own : acc, i, 1);"),
    ("uneven blocks on the circulant graph", "levels.c", "\treturn uneven;\n", "\treturn false;\n"),
    ("the chain passes a site twice", "pipeline.c", "begin = root - first;", "begin = stage == c->level ? root - first : 0;"),
    ("the chain is cut at the wrong level", "pipeline.c", "c->level = coll_layout_hosts(l);", "c->level = 0;"),
    ("the last host sends on", "broadcast_lanes.c", "ends = c->at + 1 == c->count;", "ends = c->at == c->count;"),
    ("a frame of two receivers", "pipeline.c", " &&\n\t       coll_pipeline_owner(c, other, lane + run) == there)", ")"),
    ("the root's host keeps the sums", "reduce_lanes.c", "if (c.at == 0)", "if (c.at == c.count)"),
    ("sums without the last host", "reduce_lanes.c", "ends ? from : to, &sent, c->levels.chunks", "to, &sent, c->levels.chunks"),
    ("a share too few", "levels.c", "lane += v->share[i];", "lane += v->share[i] - (i == 1 && v->share[i] > 1);"),
    ("a share is summed by its neighbour", "circulant.c", "receive_reduce(&v->rings[k], b, -d, 0, 1,", "receive_reduce(&v->rings[k], b, -d, 1, 1,"),
    ("the root sends what it was sent", "circulant.c", "rank == root ||", "rank == -1 ||"),
]


def run_mutant(args):
    number, (name, file, right, wrong), compiler, source, build, libraries, objects, folder = args
    with open(os.path.join(source, "src/algos", file)) as f:
        text = f.read()
    if text.count(right) < 1:
        return name, False, "its text is no longer in " + file
    path = os.path.join(folder, f"m{number}_{file}")
    with open(path, "w") as f:
        f.write(text.replace(right, wrong))
    program = os.path.join(folder, f"m{number}")
    command = compiler.split() + ["-std=gnu11", "-O1", "-w", "-I", source, "-I", source + "/src", "-I", source + "/include",
                                  "-I", build, "-I", build + "/src", path] + objects + libraries + ["-lpthread", "-lm", "-o", program]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode:
        return name, False, "does not compile: " + compiled.stderr[:300]
    try:
        ran = subprocess.run([program, "12", "60"], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return name, True, "never ends"
    failed = [line for line in ran.stdout.splitlines() if "FAILED" in line]
    if ran.returncode == 0:
        return name, False, "survives"
    return name, True, (failed or [f"ends with {ran.returncode}"])[0][:110]


def main():
    compiler, source, build = sys.argv[1:4]
    libraries = sys.argv[4:]
    include = ["-I", source, "-I", source + "/src", "-I", source + "/include", "-I", build, "-I", build + "/src"]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for unit in ("tests/plans/layouts.c", "tools/layout_sweep.c", "tools/plan_layout.c", "tools/plan_set.c"):
            out = os.path.join(folder, os.path.basename(unit) + ".o")
            subprocess.run(compiler.split() + ["-std=gnu11", "-O1", "-w", *include, "-c", source + "/" + unit, "-o", out],
                           check=True)
            objects.append(out)
        clean = os.path.join(folder, "clean")
        subprocess.run(compiler.split() + objects + libraries + ["-lpthread", "-lm", "-o", clean], check=True)
        if subprocess.run([clean, "12", "60"], capture_output=True).returncode:
            print("FAILED the generators without a mistake are refused")
            survivors += 1
        work = [(i, m, compiler, source, build, libraries, objects, folder) for i, m in enumerate(MUTANTS)]
        with ThreadPoolExecutor(2) as pool:
            for name, caught, how in pool.map(run_mutant, work):
                print(("ok    " if caught else "FAILED") + f" {name}: {how}")
                survivors += not caught
    print(f"{len(MUTANTS) + 1 - survivors} passed, {survivors} failed, 0 skipped")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
