#!/usr/bin/env python3
"""The measurement over hosts of several ranks: bounds, numberings, and a few calls over shaped links whose bytes are counted.
Nothing is timed.

usage: layouts_test.py BUILD-DIRECTORY
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bounds  # noqa: E402
import layouts  # noqa: E402
import network  # noqa: E402
import regret  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build"
MARK = "BENCH_LAYOUTS_TEST=%d" % os.getpid()
SHORT = "--mbit 500 --bytes 256K --blocks 1 --block-ms 1 --check"
S = 1 << 20
passed = failed = skipped = 0


class Skipped(Exception):
    pass


def same(a, b):
    if a != b:
        raise AssertionError("%r is not %r" % (a, b))


def at_1000(kind, ranks, links):
    """The least time over that of the vector at 1000 Mb/s."""
    return bounds.least_s(kind, S, ranks, links) * 1e9 / 8 / S


def even(hosts, rate=1000):
    return bounds.Links([[rate]] * hosts)


def test_bounds_of_even_hosts():
    for hosts in (2, 3, 4, 8):
        same(round(at_1000("all_reduce", [4] * hosts, even(hosts)), 9), round(2 * (hosts - 1) / hosts, 9))
        same(at_1000("broadcast", [4] * hosts, even(hosts)), 1)
        same(at_1000("reduce", [4] * hosts, even(hosts)), 1)
        for kind in ("all_gather", "reduce_scatter"):
            same(round(at_1000(kind, [4] * hosts, even(hosts)), 9), round((hosts - 1) / hosts, 9))


def test_bounds_of_uneven_hosts():
    same(at_1000("all_gather", [1, 3], even(2)), 0.75)
    same(at_1000("reduce_scatter", [1, 2, 5], even(3)), 0.875)
    same(at_1000("all_reduce", [1, 3], even(2)), 1)


def test_bounds_of_unequal_rates():
    same(at_1000("broadcast", [4, 4], bounds.Links([[1000, 250]] * 2)), 0.8)
    same(at_1000("all_reduce", [1] * 4, bounds.Links([[1000]] * 3 + [[500]])), 2)
    same(at_1000("all_reduce", [1] * 4, bounds.Links([[2000]] * 2 + [[1000]] * 2)), 1)
    # Two sites, whose uplinks have the rate of half an interface.
    same(at_1000("all_reduce", [1] * 4, bounds.Links([[1000]] * 4, [0, 0, 1, 1], 500)), 2)
    same(at_1000("all_gather", [1] * 4, bounds.Links([[1000]] * 4, [0, 0, 1, 1], 500)), 1)
    same(at_1000("all_gather", [1] * 4, bounds.Links([[1000]] * 4, [0, 0, 1, 1], 2000)), 0.75)


def test_streams_fit_on_their_links():
    for links in (even(3), bounds.Links([[1000, 250]] * 2), bounds.Links([[1000]] * 3 + [[500]]),
                  bounds.Links([[1000]] * 4, [0, 0, 1, 1], 500)):
        ring, most = bounds.streams(links)
        for h, rails in enumerate(ring):
            for k, (out, in_) in enumerate(rails):
                same(max(out, in_, most) <= max(most, links.nics[h][k]) and out <= links.nics[h][k] and in_ <= links.nics[h][k], True)
                same(out, ring[(h + 1) % links.hosts][k][1])
        if links.sites:
            same(sum(ring[h][0][0] for h in range(4) if links.sites[h] == 0 != links.sites[(h + 1) % 4]) <= links.uplink, True)


def test_numberings():
    same(layouts.hosts_of("block", [1, 3]), [0, 1, 1, 1])
    same(layouts.hosts_of("cyclic", [1, 3, 2]), [0, 1, 2, 1, 2, 1])
    same(layouts.hosts_of("random:1", [4, 4]), layouts.hosts_of("random:1", [4, 4]))
    same(len({tuple(layouts.hosts_of("random:%d" % s, [4, 4])) for s in range(9)}) > 3, True)
    same(sorted(layouts.hosts_of("random:7", [1, 2, 4])), [0, 1, 1, 2, 2, 2, 2])


def test_every_line_of_the_table_is_understood():
    for part, lines in layouts.TABLE.items():
        for line in lines:
            args = layouts.options(shlex.split(line))
            same(bool(args.must and layouts.title(args)), True)


def test_bad_arguments_are_refused():
    for line in ("--map foo", "--map random:x", "--hosts 4", "--hosts 0,1", "--sites 2+1", "--sites 1+1", "--nic-mbit 1,2 --rails 2",
                 "--host-mbit 1", "--hosts 1,1 --host-mbit 0,5", "--bytes x", "--coll all_to_all", "--must a", "--before /nowhere.so"):
        done = subprocess.run([sys.executable, layouts.__file__, *line.split()], capture_output=True, text=True)
        same((line, done.returncode, "error: " in done.stderr), (line, 2, True))


# ---- over links ----------------------------------------------------------------------------------------------------------


def running():
    """Processes of this test's runs, wherever they are."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                out += [pid] if MARK.encode() in f.read().split(b"\0") else []
        except OSError:
            pass
    return out


def devices():
    return subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True).stdout.count("\n")


def gone():
    until = time.monotonic() + 20
    while running() and time.monotonic() < until:
        time.sleep(0.05)
    return not running()


def begin(line, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    name, _, value = MARK.partition("=")
    return subprocess.Popen([sys.executable, layouts.__file__, "--build", BUILD, *line.split()], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=dict(clean, **{name: value}, **env))


def measured(line, status=0, says="", **env):
    """{(numbering, kind): load} of a run; nothing is left of it."""
    before = devices()
    p = begin(line + " " + SHORT, **env)
    said = p.communicate(timeout=240)[0]
    if p.returncode == 77:
        raise Skipped(said.strip())
    if p.returncode != status or says not in said:
        raise AssertionError("%s: exit status %d, not %d: %s" % (line, p.returncode, status, said[-800:]))
    same((gone(), devices()), (True, before))
    return {(m[1], m[2]): float(m[3]) for m in re.finditer(r"^(\S+) +(\S+) .* load ([0-9.]+) ", said, re.M)}


def test_all_kinds_and_numberings_on_uneven_hosts():
    got = measured("--hosts 1,2 --rails 2 --map block,cyclic,random:3")
    same(sorted(got), sorted((m, k) for m in ("block", "cyclic", "random:3") for k in bounds.KINDS))
    # On one of two rails alone the load is 2.
    same([k for k, load in got.items() if not 0.5 < load < 20], [])


def test_the_load_is_that_of_the_plan():
    # Counted from the plans: 1 for recursive halving where ranks are numbered host by host, half more for a ring.
    for name, least, most in (("rhd", 0.99, 1.15), ("ring", 1.45, 1.75)):
        got = measured("--hosts 2,2 --coll all_reduce", COLL_ALGO="all_reduce:" + name)[("block", "all_reduce")]
        if not least <= got <= most:
            raise AssertionError("load %.2f of %s, not from %.2f to %.2f" % (got, name, least, most))


def test_sites_and_hosts_of_their_own_rates():
    measured("--hosts 1,1,1,1 --sites 2+2 --uplink-mbit 250 --coll all_reduce")
    measured("--hosts 1,1,1 --host-mbit 500,500,250 --coll broadcast")


def library():
    return os.path.join(BUILD, "src", "libcoll.so")


def test_a_ratio_below_what_must_be_is_told():
    # That no floor can be judged is no failure, and a slow machine may miss it: the ratio to a build of our own can be.
    measured("--hosts 1,1 --coll all_reduce --before %s --must before:1000" % library(), status=1, says="before below 1000")


def test_regret_has_every_row_and_says_what_was_chosen():
    for kind, some in (("broadcast", "blocks32"), ("reduce", "lanes"), ("all_gather", "direct")):
        rows = regret.rows_of(kind)
        same((some in rows, len(rows)), (True, len(set(rows))))
    p = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "regret.py"), "--build", BUILD, "--layouts", "4x1",
                        "--mbit", "500", "--coll", "broadcast", "--bytes", "8,256K", "--blocks", "1", "--block-ms", "1", "--must", "1000"],
                       stdout=subprocess.PIPE, text=True)
    if p.returncode == 77:
        raise Skipped(p.stdout.strip())
    said = re.findall(r"^broadcast +(8 B|256 KiB)  chosen (\w+) .* best (\w+) .* regret \d+\.\d\d  floor ", p.stdout, re.M)
    same((p.returncode, [size for size, _, _ in said]), (0, ["8 B", "256 KiB"]))
    same(said[1][1], "lanes")
    same([row for _, _, row in said if row not in regret.rows_of("broadcast")], [])


def test_what_is_killed_leaves_nothing():
    before = devices()
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        p = begin("--hosts 2,1 --coll all_reduce --blocks 100000")
        first = p.stdout.readline()
        if not first.startswith("#"):
            p.wait()
            raise Skipped(first.strip())
        while len(running()) < 7:  # streams, ranks, and this program
            same(p.poll(), None)
            time.sleep(0.05)
        p.send_signal(number)
        p.wait()
        p.stdout.close()
        same((number, gone(), devices()), (number, True, before))


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
