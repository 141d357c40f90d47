#!/usr/bin/env python3
"""Collectives between hosts of several ranks, whatever their numbers: right results, every plan verified as it is made, and
the same layout on every rank. Hosts are made by COLL_HOST_ID, so no right is needed.

layouts.py COLLRUN BENCH_FOLDER
"""
import re
import subprocess
import sys

PROGRAMS = ["allreduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"]
# The host of each rank, and how the log should name the layout.
CASES = [
    ("0011", "host(2) x rank(2)"),
    ("010101", "host(2) x rank(3)"),
    ("0111", "host(2) x rank(1..3)"),
    ("2100212", "host(3) x rank(2..3)"),
    ("0123", "flat"),
    ("0000", "flat"),
]


def run(collrun, program, hosts, env, *arguments):
    script = "h=%s; %s COLL_HOST_ID=x${h:$COLL_RANK:1} exec %s %s" % (hosts, env, program, " ".join(arguments))
    return subprocess.run([collrun, "-n", str(len(hosts)), "bash", "-c", script], capture_output=True, text=True, timeout=120)


def main():
    collrun, folder = sys.argv[1:3]
    passed = failed = 0

    def check(fine, what, output):
        nonlocal passed, failed
        print(("ok    " if fine else "FAILED") + " " + what)
        if not fine:
            print(output[-2000:])
        passed += fine
        failed += not fine

    for hosts, layout in CASES:
        for name in PROGRAMS if len(set(hosts)) > 1 else PROGRAMS[:1]:
            r = run(collrun, f"{folder}/{name}_perf", hosts, "COLL_DEBUG=info", "-b 12 -e 300012 -f 13 -n 2 -w 1 -c 1")
            text = r.stdout + r.stderr
            right = r.returncode == 0 and "Out of bounds values : 0 OK" in text
            said = re.findall(r"layout (.*?), launcher", text)
            check(right and len(said) == len(hosts) and set(said) == {layout}, f"{name} {hosts}: {layout}", text)
    r = run(collrun, f"{folder}/barrier_perf", "0011", "", "-n 3 -w 1")
    check(r.returncode == 0, "barrier 0011", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", "0011", "COLL_LAYOUT=flat COLL_DEBUG=info", "-b 1M -e 1M -n 1 -w 1 -c 1")
    check(r.returncode == 0 and "layout flat" in r.stdout + r.stderr, "COLL_LAYOUT=flat", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", "0011", "COLL_LAYOUT=deep", "-b 8 -e 8")
    check(r.returncode != 0 and "COLL_LAYOUT=deep" in r.stderr + r.stdout, "COLL_LAYOUT=deep is refused", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", "0011", "COLL_LAYOUT=$([ $COLL_RANK = 2 ] && echo flat || echo auto)", "-b 8 -e 8")
    check(r.returncode != 0 and "COLL_LAYOUT" in r.stderr + r.stdout, "ranks that differ in COLL_LAYOUT are refused", r.stdout + r.stderr)
    # Six ranks on three hosts of two sites; the middle letter is the host.
    sites = 'COLL_SITE=s$([ ${h:$COLL_RANK:1} = 2 ] && echo far || echo near)'
    for name in PROGRAMS:
        r = run(collrun, f"{folder}/{name}_perf", "012012", sites + " COLL_DEBUG=info", "-b 12 -e 300012 -f 13 -n 2 -w 1 -c 1")
        text = r.stdout + r.stderr
        said = set(re.findall(r"layout (.*?), launcher", text))
        check(r.returncode == 0 and "Out of bounds values : 0 OK" in text and said == {"site(2) x host(1..2) x rank(2)"}, f"{name}: sites", text)
    # One rank on each of four hosts of two sites: the host level stays, since links cross it.
    for name in PROGRAMS:
        r = run(collrun, f"{folder}/{name}_perf", "0123", "COLL_SITE=s$((COLL_RANK % 2)) COLL_DEBUG=info", "-b 12 -e 300012 -f 13 -n 2 -w 1 -c 1")
        text = r.stdout + r.stderr
        said = set(re.findall(r"layout (.*?), launcher", text))
        check(r.returncode == 0 and "Out of bounds values : 0 OK" in text and said == {"site(2) x host(2) x rank(1)"}, f"{name}: sites of single ranks", text)
    # The rate of a site's uplink: told by all its ranks or by none, and part of the price and of the explanation.
    r = run(collrun, f"{folder}/allreduce_perf", "001122", sites + " COLL_SITE_RATE=80 COLL_DEBUG=info", "-b 4M -e 4M -n 1 -w 1 -c 1")
    text = r.stdout + r.stderr
    said = set(re.findall(r"layout (.*?), launcher", text))
    price = re.search(r"bytes=4194304: circulant .*?circulant ([0-9.]+) us", text)
    check(r.returncode == 0 and said == {"site(2) x host(1..2) x rank(2), uplinks of 80 Mb/s"} and price and 419430 <= float(price[1]) < 500000,
          "4 MiB over an uplink of 80 Mb/s, 10 MB/s", text)
    r = run(collrun, f"{folder}/allreduce_perf", "001122", sites + " COLL_SITE_RATE=$((${h:$COLL_RANK:1} == 2 ? 5 : 7))", "-b 8 -e 8")
    check(r.returncode == 0, "sites of different rates", r.stdout + r.stderr)
    for rate, other in ((7, 8), (7, 0), (0, 7)):
        r = run(collrun, f"{folder}/allreduce_perf", "001122", sites + f" COLL_SITE_RATE=$((COLL_RANK == 3 ? {other} : {rate}))", "-b 8 -e 8")
        check(r.returncode != 0 and f"COLL_SITE_RATE: ranks 0 and 3 share a site, but it is {rate} on rank 0 and {other} on rank 3" in r.stderr + r.stdout,
              f"rates {rate} and {other} of one site are refused", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", "0011", "COLL_SITE=$([ $COLL_RANK = 3 ] || echo a)", "-b 8 -e 8")
    check(r.returncode != 0 and "COLL_SITE: rank 0 has one, rank 3 has none" in r.stderr + r.stdout, "a rank without a site is refused", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", "0011", "COLL_SITE=s$COLL_RANK", "-b 8 -e 8")
    check(r.returncode != 0 and "ranks 0 and 1 share host" in r.stderr + r.stdout, "ranks of one host on two sites are refused", r.stdout + r.stderr)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
