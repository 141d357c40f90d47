#!/usr/bin/env python3
"""The side-by-side benchmark itself: statistics, files, judge, reports, and the drivers' protocol. Nothing is timed.

usage: peers_test.py BUILD-DIRECTORY
"""
import os
import shutil
import subprocess
import sys
import tempfile
import types
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cells  # noqa: E402
import cores  # noqa: E402
import devices  # noqa: E402
import verdict  # noqa: E402
import plot  # noqa: E402
import ranks  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build"
CTX = types.SimpleNamespace(build=BUILD, transport="shm", python=sys.executable, cc=None, unpinned=False)
passed = failed = skipped = 0


class Skipped(Exception):
    pass


def same(a, b):
    if a != b:
        raise AssertionError("%r is not %r" % (a, b))


def raises(what, fn, *args):
    try:
        fn(*args)
    except what as e:
        return str(e)
    raise AssertionError("%s did not raise %s" % (fn, what))


def cell(seconds, **more):
    return dict({"transport": "shm", "cc": None, "ranks": 2, "kind": "all_reduce", "bytes": 8, "place": "out", "cold": False,
                 "seconds": seconds, "left_out": {}}, **more)


def test_sizes():
    same([cells.size_of(t) for t in ("8", "4K", "2m", "1G", "3KiB")], [8, 4096, 2 << 20, 1 << 30, 3072])
    same([cells.size_text(s) for s in (8, 4096, 5000, 1 << 20, 3 << 30)], ["8 B", "4 KiB", "5000 B", "1 MiB", "3 GiB"])
    for bad in ("", "K", "-1", "4T", "1.5M"):
        raises(ValueError, cells.size_of, bad)


def test_interval_is_of_order_statistics():
    # 9 values: the 2nd and the 8th enclose the median with at least 95 % (binomial: 0.961).
    same(cells.interval([5, 1, 9, 2, 8, 3, 7, 4, 6]), (5, 2, 8))
    same(cells.interval([3]), (3, 3, 3))
    same(cells.interval([1, 2]), (1.5, 1, 2))


def test_ratios_are_made_block_by_block():
    # Ratios 2, 4, 1: their median is 2; the ratio of the medians would be 4 / 2 = 2 only by chance, so use others.
    c = cell({"ours": [1, 2, 9], "openmpi": [3, 4, 9]})
    same(cells.ratios(c, "openmpi", "ours")[0], 2)
    c = cell({"ours": [1, 5, 10], "openmpi": [10, 5, 1]})
    same(cells.ratios(c, "openmpi", "ours")[0], 1)
    same(cells.ratios(c, "mpich", "ours"), None)
    same(cells.ratios(cell({"ours": [1], "mpich": [1, 2]}), "mpich", "ours"), None)


def test_merge_keeps_the_later_cell():
    first = {"runs": [1], "cells": [cell({"ours": [1]}), cell({"ours": [2]}, bytes=4096)]}
    later = {"runs": [2], "cells": [cell({"ours": [3]}), cell({"ours": [4]}, place="in")]}
    d = cells.merge([first, later])
    same(d["runs"], [1, 2])
    # Beside other peers it is another cell.
    same(len(cells.merge([first, {"runs": [], "cells": [cell({"ours": [3], "mpich": [4]})]}])["cells"]), 3)
    same({(c["bytes"], c["place"]): c["seconds"]["ours"][0] for c in d["cells"]}, {(8, "out"): 3, (4096, "out"): 2, (8, "in"): 4})


def test_what_is_saved_is_loaded():
    d = {"runs": [dict.fromkeys(cells.RUN, "x")], "cells": [cell({"ours": [1.5e-7]})]}
    with tempfile.TemporaryDirectory() as dir_:
        cells.save(dir_ + "/a.json", d)
        same(cells.load(dir_ + "/a.json"), d)
        with open(dir_ + "/a.json") as f:
            whole = f.read()
        for other in ("{}", "[1, 2]", "", whole[:len(whole) // 2], whole.replace('"seconds"', '"minutes"'), whole.replace("date", "day")):
            with open(dir_ + "/b.json", "w") as f:
                f.write(other)
            same("b.json is no result of this program" in raises(ValueError, cells.load, dir_ + "/b.json"), True)


def verdict_of(name, the_cells):
    return next((r[5], r[6]) for r in verdict.verdicts(the_cells) if r[0] == name)


def test_judge_takes_the_worst_cell():
    name = "shm 8-48 B / Open MPI"
    good = cell({"ours": [1] * 3, "openmpi": [2.6] * 3})
    fair = cell({"ours": [1] * 3, "openmpi": [2.1] * 3}, bytes=48)
    bad = cell({"ours": [1] * 3, "openmpi": [1.9] * 3}, bytes=32)
    same(verdict_of(name, [good])[0], "aim")
    same(verdict_of(name, [good, fair])[0], "must")
    same(verdict_of(name, [good, bad, fair]), ("MISSED", ["32 B out 1.90"]))
    same(verdict_of(name, [])[0], "not measured")
    # Cells of other rows do not count: cold, other sizes, other ranks, other transports.
    for other in ({"cold": True}, {"bytes": 64}, {"ranks": 4}, {"transport": "tcp"}, {"kind": "broadcast"}, {"cc": "reno"}):
        same(verdict_of(name, [good, dict(bad, **other)])[0], "aim")


def test_judge_knows_which_way_is_good():
    name = "shm 8-48 B, ours / cache line one way"
    same(verdict_of(name, [cell({"ours": [1.2], "line": [1]})])[0], "aim")
    same(verdict_of(name, [cell({"ours": [1.4], "line": [1]})])[0], "must")
    same(verdict_of(name, [cell({"ours": [1.6], "line": [1]}), cell({"ours": [1.2], "line": [1]}, place="in")])[0], "MISSED")
    name = "shm >= 2 MiB own buffers, share of the floor"
    same(verdict_of(name, [cell({"ours_own": [1], "floor": [0.85]}, bytes=2 << 20)])[0], "must")
    same(verdict_of(name, [cell({"ours_own": [1], "floor": [0.7]}, bytes=2 << 20)])[0], "MISSED")


def test_judge_wants_both_peers_where_it_says_both():
    name = "shm 4 KiB / both MPIs"
    same(verdict_of(name, [cell({"ours": [1], "openmpi": [9]}, bytes=4096)])[0], "not measured")
    same(verdict_of(name, [cell({"ours": [1], "openmpi": [9], "mpich": [1]}, bytes=4096)])[0], "MISSED")


def test_any_n_by_the_line():
    same(verdict.straight({2: 1.0, 4: 2.0, 8: 3.0}), {})
    far = verdict.straight({2: 1.0, 3: 3.0, 4: 2.0, 5: 2.0, 8: 2.0})
    same(round(far[3], 3), round(3 / (1 + 0.5849625), 3))
    same(far[5], 1.0)


def test_reports_have_every_cell():
    d = [cell({"ours": [1e-6, 1e-6], "openmpi": [2e-6, 2e-6]}), cell({"ours": [1e-3] * 2, "openmpi": [3e-3] * 2}, bytes=1 << 20)]
    text = report.text(d)
    for what in ("8 B", "1 MiB", "OMPI/ours", "2.00 (2.00-2.00)", "3.00 (3.00-3.00)"):
        same(what in text, True)
    same(report.markdown(d).count("\n|"), 4)
    same(len(verdict.text(d).splitlines()) >= len(verdict.ROWS), True)


def test_plot_is_xml_with_a_line_of_each():
    d = [cell({"ours": [1e-6], "openmpi": [2e-6], "floor": [5e-7]}),
         cell({"ours": [1e-3], "openmpi": [3e-3], "floor": [1e-3]}, bytes=1 << 20)]
    parsed = xml.dom.minidom.parseString(plot.svg(d, "title", "subtitle"))
    same(len(parsed.getElementsByTagName("polyline")), 5)
    same(plot.svg([], "title", ""), None)


def test_plan_has_what_was_asked():
    args = run.options(["--coll", "all_reduce,barrier,all_gather", "--sizes", "8,12,4K", "--ranks", "4"])
    same([(c["kind"], c["bytes"], c["place"]) for c in run.plan(args)],
         [("all_reduce", 8, "out"), ("all_reduce", 12, "out"), ("all_reduce", 4096, "out"), ("all_reduce", 8, "in"),
          ("all_reduce", 12, "in"), ("all_reduce", 4096, "in"), ("barrier", 0, "out"), ("all_gather", 4096, "out")])
    raises(SystemExit, run.plan, run.options(["--coll", "all_produce"]))


def busy_cell(kind, size, busy, ours, gloo, cpu=(1.0, 2.0), openmpi=None):
    seconds = {"ours": [ours] * 3, "gloo": [gloo] * 3, **({"openmpi": [openmpi] * 3} if openmpi else {})}
    return dict(cores.new_cell(2, busy, kind, size), seconds=seconds,
                used={n: [[c, 0.5, 0.1]] * 3 for n, c in zip(("ours", "gloo"), cpu)})


def test_busy_cores_are_judged_by_the_faster_peer():
    good = busy_cell("all_reduce", 25 << 20, 4, 0.5, 1.0)
    same(cores.misses([good]), [])
    same(cores.beside(good)[2], "gloo")
    faster = busy_cell("all_reduce", 25 << 20, 4, 0.5, 1.0, openmpi=0.4)
    same((cores.beside(faster)[2], round(cores.beside(faster)[0][0], 2)), ("openmpi", 1.25))
    same([m.split(":")[0] for m in cores.misses([faster])], ["2 ranks, 4 busy, all_reduce 25 MiB", "the median of the 1 cells of 64 KiB and more is 1.25, at most 0.8"])
    same(cores.misses([busy_cell("all_reduce", 4, 4, 1.15, 1.0)]), [])
    same(len(cores.misses([busy_cell("barrier", 0, 4, 1.25, 1.0)])), 1)
    same("processor time" in cores.misses([busy_cell("all_reduce", 1 << 20, 2, 0.5, 1.0, cpu=(3.0, 2.0))])[0], True)


def test_idle_and_busy_stand_side_by_side():
    run_ = {"machine": "A processor, 2 cores, Linux 6", "commit": "c", "date": "2026-11-28T01:02:03", "load": [0.1], "blocks": 3,
            "block_ms": 300, "versions": {"ours": "v"}}
    d = {"runs": [run_], "cells": [busy_cell("all_reduce", 4, b, 1e-6 * (b + 1), 1e-4) for b in (0, 2, 4)]}
    same(cores.quoted(d).splitlines()[-1], "| all_reduce 4 B | 1.0 | 100 (Gloo) | 5.0 | 100 (Gloo) |")
    for what in ("| 2 ranks | idle | 2 busy | 4 busy |", "| all_reduce 4 B | 0.01 | 0.03 | 0.05 |", "Nothing."):
        same(what in cores.page(d), True)


def called(*arguments):
    return subprocess.run([sys.executable, run.HERE + "/run.py", "--build", BUILD, "--peers", "none", "--no-floor", *arguments],
                          capture_output=True, text=True)


def test_bad_arguments_are_told_before_anything_is_measured():
    for bad in ("--sizes 8,,16", "--sizes 1.5K", "--sizes=", "--ranks 0", "--ranks -3", "--blocks 0", "--block-ms 0", "--block-ms nan",
                "--buffers foo", "--cold-bytes many", "--json /nowhere/at/all.json", "--json /", "--svg /dev/null/plots"):
        done = called("--coll", "all_reduce", *bad.split())
        same((bad, done.returncode, done.stdout, "Traceback" in done.stderr), (bad, 2, "", False))
        same(bad.replace("=", " ").split()[0] in done.stderr.splitlines()[-1], True)
    done = called("--merge", "/nowhere/at/all.json")
    same((done.returncode, done.stdout, done.stderr), (1, "", "--merge: [Errno 2] No such file or directory: '/nowhere/at/all.json'\n"))


def test_what_is_left_out_is_said():
    said = []
    run.plan(run.options(["--coll", "all_gather,all_reduce", "--sizes", "8,12,64K", "--ranks", "3"]), said.append)
    same(said, ["all_gather of 8 B, 64 KiB: left out: no multiple of 4 bytes for each of 3 ranks"])
    done = called("--coll", "all_reduce", "--sizes", "3", "--place", "in", "--blocks", "1")
    same(done.returncode, 0)
    same(done.stderr.startswith("all_reduce of 3 B: left out: "), True)


def test_nothing_measured_keeps_what_was_there():
    with tempfile.TemporaryDirectory() as dir_:
        file = dir_ + "/out.json"
        cells.save(file, {"runs": [], "cells": [cell({"ours": [1.0]})]})
        done = subprocess.run([sys.executable, run.HERE + "/run.py", "--build", "/nowhere", "--json", file], capture_output=True)
        same((done.returncode, len(cells.load(file)["cells"])), (1, 1))


def test_an_end_while_they_start_leaves_nothing():
    """As by Ctrl-C: when the second library starts, the first is there and must go, with its directory."""
    at, real = {"calls": 0, "dirs": []}, ranks.Ranks

    def interrupted(name, ctx, n):
        at["calls"] += 1
        if at["calls"] == 2:
            raise KeyboardInterrupt
        lib = real(name, ctx, n)
        at["dirs"].append(lib.dir)
        return lib

    ranks.Ranks = interrupted
    try:
        args = run.options(["--build", BUILD, "--peers", "none", "--no-floor", "--coll", "all_reduce", "--sizes", "8"])
        same(run.run_all(args, {"runs": [], "cells": []}, lambda line: None), 130)
    finally:
        ranks.Ranks = real
    same([len(at["dirs"]), os.path.exists(at["dirs"][0])], [1, False])


def test_parts_of_the_table_get_the_other_arguments():
    same(run.without(["--quick", "--table", "shm", "--json", "x"], "--table"), ["--quick", "--json", "x"])
    same(run.without(["--table", "--quick", "--json", "x"], "--table"), ["--quick", "--json", "x"])
    same(run.without(["--table=shm", "--quick"], "--table"), ["--quick"])


# Programs that ./run calls: what is installed is said by a file; the others write what they are asked for.
INSTALLED = 'case "$3" in *Version*) cat installed ;; *) echo installed ;; esac\n'
MESON = 'echo "meson $*" >>calls\n[ "$1" != setup ] || { mkdir -p build/release; touch build/release/build.ninja; }\n'


def test_peers_that_come_or_go_are_looked_for_again():
    again = ["meson configure build/release --clearcache", "meson setup --reconfigure build/release"]
    with tempfile.TemporaryDirectory() as dir_:
        shutil.copy(run.ROOT + "/run", dir_)
        for name, text in (("dpkg-query", INSTALLED), ("meson", MESON), ("ninja", ""), ("python3", "")):
            with open(os.path.join(dir_, name), "w") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(f.name, 0o755)

        def called(installed):
            for name, text in (("calls", ""), ("installed", installed)):
                with open(os.path.join(dir_, name), "w") as f:
                    f.write(text)
            subprocess.run([dir_ + "/run", "bench"], env=dict(os.environ, PATH=dir_ + ":" + os.environ["PATH"]), check=True)
            with open(dir_ + "/calls") as f:
                return f.read().splitlines()

        same([c.split()[:3] for c in called("mpich 4 installed\n")], [["meson", "setup", "build/release"]])
        same(called("mpich 4 installed\n"), [])
        same(called("mpich 4 installed\nlibgloo-dev 1 installed\n"), again)
        same(called("mpich 4 installed\nlibgloo-dev 1 installed\n"), [])
        same(called(""), again)


# ---- Drivers --------------------------------------------------------------------


def started(name, n=2, ctx=CTX):
    try:
        return ranks.Ranks(name, ctx, n)
    except ranks.Missing as e:
        raise Skipped("%s: %s" % (name, e)) from None


def drive(name, n=2, ctx=CTX, must=("all_reduce",)):
    """Every collective, small and not, both ways of timing; results are checked by the driver."""
    lib = started(name, n, ctx)
    seen = set()
    try:
        for kind in cells.KINDS + cells.MESSAGES:
            for size in [0] if kind == "barrier" else [4 * n, 256 * n, 40000 * n]:
                for place in ("out", "in"):
                    if lib.prepare(kind, size, place):
                        continue
                    lib.check(kind in ("all_reduce", "broadcast", "all_gather"))
                    for how in ("loop", "each"):
                        same(lib.block(how, 5, 3) >= 0, True)
                    lib.check(False)
                    seen.add(kind)
        same([k for k in must if k not in seen], [])
    finally:
        lib.close()


def test_ours():
    drive("ours", must=cells.KINDS + cells.MESSAGES)


def test_ours_in_own_buffers():
    drive("ours_own", must=cells.KINDS)


def test_ours_on_three_ranks_over_tcp():
    drive("ours", 3, types.SimpleNamespace(**dict(vars(CTX), transport="tcp")), must=cells.KINDS)


def test_floor():
    drive("floor", must=cells.KINDS)


def test_floor_of_three_ranks():
    drive("floor", 3, must=cells.KINDS)


def test_floor_over_tcp():
    for n in (2, 3):
        drive("floor", n, types.SimpleNamespace(**dict(vars(CTX), transport="tcp")), must=cells.KINDS)


def test_line():
    drive("line")


def test_openmpi():
    drive("openmpi", must=cells.KINDS + cells.MESSAGES)


def test_mpich():
    drive("mpich", must=cells.KINDS)


def test_gloo():
    drive("gloo", must=("all_reduce", "send_recv"))


def test_torch():
    done = subprocess.run([ranks.default_python(), "-c", "import torch"], capture_output=True)
    if done.returncode:
        raise Skipped("torch: not in this Python")
    drive("torch", ctx=types.SimpleNamespace(**dict(vars(CTX), python=ranks.default_python())))


def test_two_at_once():
    """As in a run: one sleeps while the other's block runs, and is there afterwards."""
    with tempfile.TemporaryDirectory() as dir_:
        file = dir_ + "/out.json"
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.py"), "--build", BUILD,
                               "--peers", "none", "--no-floor", "--blocks", "2", "--block-ms", "0.1", "--json", file,
                               "--coll", "all_reduce,barrier", "--sizes", "8,20K", "--cold", "--cold-bytes", "64K"],
                              capture_output=True, text=True)
        same((done.returncode, done.stderr), (0, ""))
        d = cells.load(file)
        same([(c["kind"], c["bytes"], c["place"], c["how"]) for c in d["cells"]],
             [("all_reduce", 8, "out", "loop"), ("all_reduce", 20480, "out", "each"), ("all_reduce", 8, "in", "loop"),
              ("all_reduce", 20480, "in", "each"), ("barrier", 0, "out", "loop")])
        for c in d["cells"]:
            same(sorted((n, len(s)) for n, s in c["seconds"].items()), [("ours", 2), ("ours_own", 2)])


def test_table_merges_its_parts():
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as dir_:
        file = dir_ + "/out.json"
        done = subprocess.run([sys.executable, here + "/run.py", "--table", "ranks2,ranks3", "--build", BUILD, "--blocks", "1",
                               "--block-ms", "0.1", "--json", file, "--judge", "--svg", dir_ + "/plots"], capture_output=True, text=True)
        same((done.returncode, done.stderr), (0, ""))
        same(sorted((c["ranks"], c["bytes"]) for c in cells.load(file)["cells"]), [(2, 65536), (2, 1 << 20), (3, 65536), (3, 1 << 20)])
        same("not measured any n" in done.stdout, True)
        same(sorted(os.listdir(dir_ + "/plots")), ["all-reduce-tcp-%d-ranks-out-of-place.svg" % n for n in (2, 3)])
        same(done.stdout.splitlines()[-1], "cells in %s; 2 plots in %s/plots" % (file, dir_))


def test_shown_is_the_longest_and_fullest():
    gloo = cell({"ours": [1], "gloo": [2], "mpich": [2]})
    cells_ = [cell({"ours": [1], "mpich": [2]}), cell({"ours": [1], "mpich": [2]}, bytes=16), gloo,
              cell({"ours": [1], "gloo": [2], "mpich": [2]}, bytes=64), cell({"ours": [1]}, place="in", bytes=16),
              cell({"ours": [1]}, transport="tcp", cc="reno"), cell({"ours": [1]}, transport="tcp", ranks=4)]
    seen = run.shown(cells_)
    same(sorted(seen), ["shm"])
    same(gloo in seen["shm"][1], True)
    same(sorted(c["bytes"] for c in seen["shm"][1]), [8, 64])


def test_driver_refuses_what_it_does_not_know():
    lib = started("ours")
    try:
        same(lib.prepare("all_produce", 8, "out") is not None, True)
        same(lib.prepare("all_gather", 12, "out") is not None, True)
        same(set(lib.ask("dance")), {"wrong: no such command"})
        raises(ranks.Failed, lib.block, "loop", 1, 0)  # nothing is prepared
        same(lib.prepare("all_reduce", 8, "out"), None)
        lib.check(True)
    finally:
        lib.close()


def run_devices(*line):
    done = subprocess.run([sys.executable, devices.__file__, "--build", BUILD, "--ranks", "2", "--max", "64", "--iterations", "2", *line],
                          stdout=subprocess.PIPE, text=True, timeout=120)
    return done.returncode, done.stdout


def test_rows_of_nccl_tests():
    line = "  64  16  float  sum  -1  12.5  0.1  0.1  %s  11.5  0.1  0.1  0  10.0 12.0 14.0  10.0 11.0 12.0  device-direct\n"
    same(devices.rows_of("# size\n" + line % 0, devices.TIME), {64: 12.5})
    same(devices.rows_of(line % "N/A", devices.P50), {64: 12.0})
    raises(ranks.Failed, devices.rows_of, line % 3, devices.TIME)


def kernels():
    return "no kernels" not in subprocess.run([BUILD + "/tools/coll-info"], stdout=subprocess.PIPE, text=True).stdout


def test_devices_on_the_stand_in_driver():
    driver = BUILD + "/tests/softcuda/libcuda.so.1"
    if not os.path.exists(driver) or not kernels():
        raise Skipped("this build has no stand-in driver, or no kernels")
    status, text = run_devices("--driver", driver)
    same(status, 0)
    same("STAND-IN DRIVER: no figure" in text and "2 ranks, stand-in driver" in text and "they need a real device" in text, True)
    rows = [line.split("  ") for line in text.splitlines() if line.strip().startswith(("size ", "8 B", "64 B"))]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    same(rows[0][:5], ["size", "direct", "direct, threads", "staged", "host"])
    # A short call of so few iterations may take 0.0 us.
    same([len(row) == len(rows[0]) and all(float(cell) >= 0 for cell in row[1:]) for row in rows[1:]], [True, True])


def test_devices_without_a_driver():
    status, text = run_devices("--driver", "/nowhere/libcuda.so.1")
    same(status, 0)
    # Named for the machine and for each series; the rows of host memory are there.
    reason = "cannot load the CUDA driver: /nowhere/libcuda.so.1" if kernels() else "this build has no kernels for CUDA devices"
    same(text.count(reason) >= 4 and " host" in text and "STAND-IN" not in text, True)


FAKE = """import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["COLL_BENCH_SOCKET"]); f = s.makefile("rw")
rank = int(os.environ["COLL_BENCH_RANK"])
f.write("hello %d 2 1 fake\\n" % rank); f.flush()
for line in f:
    f.write({"check": ANSWER}.get(line.strip(), "ok") + "\\n"); f.flush()
"""


def fake(answer):
    ranks.KINDS["fake"] = (ranks.command_each([sys.executable, "-c", FAKE.replace("ANSWER", answer), "/dev/null"]), False, "plain")
    ranks.TITLES["fake"] = "fake"
    return ranks.Ranks("fake", CTX, 2)


def test_a_wrong_result_fails():
    for answer, what in (("'wrong 1 of 2 at 0'", "wrong 1 of 2 at 0"), ("'ok %d' % rank", "ranks differ"),
                         ("sys.exit(3) if rank else 'ok 1'", "died")):
        lib = fake(answer)
        try:
            same(what in raises(ranks.Failed, lib.check, True), True)
        finally:
            lib.close()


def test_one_that_does_not_start_is_told():
    ranks.KINDS["fake"] = (ranks.command_each([sys.executable, "-c", "print('no luck'); raise SystemExit(1)", "/dev/null"]), False,
                           "plain")
    same("no luck" in raises(ranks.Failed, ranks.Ranks, "fake", CTX, 2), True)
    ranks.KINDS["fake"] = (ranks.command_each(["/nowhere/at/all"]), False, "plain")
    raises(ranks.Missing, ranks.Ranks, "fake", CTX, 2)


for test_name, test in [(n, f) for n, f in list(globals().items()) if n.startswith("test_")]:
    try:
        test()
        passed += 1
    except Skipped as why:
        print("%s: skipped: %s" % (test_name, why))
        skipped += 1
    except BaseException as why:  # noqa: BLE001: told, and counted
        print("FAILED %s: %s: %s" % (test_name, type(why).__name__, why))
        failed += 1
print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
sys.exit(failed > 0)
