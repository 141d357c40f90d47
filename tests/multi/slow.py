#!/usr/bin/env python3
"""Who is slow: ranks that sleep before each call, or the links of one host of four, are named by coll-info --slow and by
warnings, and nobody else is. Names are checked, never times. usage: slow.py BUILD-DIRECTORY ranks|links"""
import json
import os
import re
import subprocess
import sys
import tempfile

import apart

if sys.argv[2:] == ["links"]:
    apart.apart()

import job as jobs  # noqa: E402
import links as lame  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
COLLRUN, PACED = f"{BUILD}/tools/collrun", f"{BUILD}/tests/paced"
SLOW_MS, SLOW, LONG_S = 20, {1, 4, 6}, 90
failed = []


def check(good, what):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        failed.append(what)


class Job:
    """paced under collrun; options: of collrun; start: what begins its words."""

    def __init__(self, options, count, slow, wrap=lambda words: words, start=(), **settings):
        self.folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.stop, self.log = self.folder.name + "/stop", self.folder.name + "/log"
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        with open(self.log, "w") as log:
            self.launcher = subprocess.Popen(wrap([COLLRUN, *options, "--no-prefix", *start, PACED, self.stop, str(count), str(SLOW_MS),
                                                   *map(str, sorted(slow))]), stdout=log, stderr=log, env=dict(env, **settings))

    def lines(self, pattern):
        with open(self.log, errors="replace") as f:
            return [m.groups() for m in map(re.compile(pattern).search, f) if m]

    def pids(self):
        return {int(r): int(p) for r, p in self.lines(r"^running (\d+) (\d+)$")}

    def behind(self):
        return {int(r) for r, in self.lines(r"rank (\d+) of the job .* is behind its peers.*\[COLL-5115\]")}

    def links(self):
        """The pairs of hosts that warnings name."""
        return {frozenset(x) for x in self.lines(r"link (\w+)-(\w+) \(rank.*\[COLL-5116\]")}

    def end(self):
        open(self.stop, "w").close()
        return self.launcher.wait(timeout=120)


def info(pid, *options, wrap=lambda words: words):
    p = subprocess.run(wrap([f"{BUILD}/tools/coll-info", "--pid", str(pid), "--slow", *options]), capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout


def behind_by_metrics(files):
    found = set()
    for path in files:
        with open(path) as f:
            found |= {int(r) for r, v in re.findall(r'^coll_behind_seconds\{rank="(\d+)"\} (\S+)$', f.read(), re.M) if float(v) > 0}
    return found


def ranks():
    place = tempfile.TemporaryDirectory()
    victim = place.name + "/victim"
    # A link where another user could expect the file that is renamed.
    link = ["sh", "-c", 'ln -s "$0" "$1/$COLL_RANK.prom.$$"; shift; exec "$@"', victim, place.name]
    j = Job(["-n", "8"], 1024, SLOW, start=link, COLL_DEBUG="info", COLL_METRICS_FILE=place.name + "/%r.prom", COLL_METRICS_S="1")
    metrics = [f"{place.name}/{r}.prom" for r in range(8)]
    started = jobs.until(lambda: len(j.pids()) == 8, LONG_S)
    check(started, "the job runs")
    check(jobs.until(lambda: j.behind() >= SLOW, LONG_S), f"warnings name {SLOW}: {j.behind()}")
    status, text = info(j.launcher.pid)
    print(text)
    status, text = info(j.launcher.pid, "--json")
    told = json.loads(text)
    named = {r["rank"] for r in told["ranks"] if r["slow"]}
    check(status == 1 and named == SLOW and len(told["ranks"]) == 8, f"coll-info --slow names {named}")
    check(not any(r["slow_links"] for r in told["ranks"]), "no link is named")
    check(jobs.until(lambda: behind_by_metrics(metrics) == SLOW, 30), f"metrics: {behind_by_metrics(metrics)}")
    check(j.end() == 0, "the job ends")
    check(j.behind() == SLOW, f"warnings name nobody else: {j.behind()}")
    waiters = {int(r) for r, p, n in j.lines(r"^waited (\d+) (\d+) (\d+)$") if int(n) >= 20}
    check(waiters >= set(range(8)) - SLOW, f"coll_comm_peer_stats(): had to wait for another rank at the end of at least 20 calls: {waiters}")
    check(j.lines(r"info: .*calls waited .* was last in"), "a line at destroy")
    left = sorted(os.listdir(place.name))
    check(len(left) == 16 and "victim" not in left, f"metrics are written through no link: {left}")


def links():
    hosts, env = lame.lame_host()
    try:
        on_a = hosts.hosts["a"].command
        j = Job(["-H", lame.RANKS], 65536, set(), on_a, **env)
        check(jobs.until(lambda: len(j.pids()) == 8, LONG_S), "the job runs")
        check(jobs.until(lambda: j.links() >= lame.EXPECTED, LONG_S), f"warnings name {sorted(map(sorted, j.links()))}")
        status, text = info(j.pids()[0], wrap=on_a)
        print(text)
        named = {frozenset(x) for x in re.findall(r"^slow: link (\w+)-(\w+) ", text, re.M)}
        check(status == 1 and named == lame.EXPECTED and "slow: rank" not in text, f"coll-info --slow names {sorted(map(sorted, named))}")
        check(j.end() == 0, "the job ends")
        check(j.links() == lame.EXPECTED and not j.behind(), f"warnings name nobody else: {sorted(map(sorted, j.links()))} {j.behind()}")
        if failed:
            print(open(j.log).read()[-4000:])
    finally:
        for host in hosts.hosts.values():
            host.end()


{"ranks": ranks, "links": links}[sys.argv[2]]()
print(f"{0 if failed else 1} passed, {len(failed)} failed, 0 skipped")
sys.exit(1 if failed else 0)
