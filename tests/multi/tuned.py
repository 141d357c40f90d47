#!/usr/bin/env python3
"""Hosts whose links are shaped: what the library takes them for, who says so, what coll-tune measures of them, and that a
table of it changes plans and prices, but no result. Rates have wide limits here, since other work of the machine slows links.

usage: tuned.py BUILD-DIRECTORY"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench", "peers"))
import bounds  # noqa: E402
import network  # noqa: E402

RATE = 200
BUILD = os.path.abspath(sys.argv[1])
TABLE = os.environ.get("TMPDIR", "/tmp") + "/tuned.table"


class Job:
    """One rank on each host of a network, in the order of hosts."""

    port = 20000

    def __init__(self, net):
        self.net = net

    def run(self, *line, **settings):
        """(whether all ended well, what rank 0 wrote, what all wrote). A setting may be a list: one for each host."""
        Job.port += 1
        n, key = self.net.links.hosts, os.urandom(16).hex()
        ranks = []
        for host in range(n):
            env = dict(os.environ, COLL_RANK=str(host), COLL_SIZE=str(n), COLL_JOB_KEY=key, COLL_TCP_CONGESTION="cubic",
                       COLL_ROOT="%s:%d" % (self.net.address(0, 0), Job.port))
            env.update({k: v[host] if isinstance(v, list) else v for k, v in settings.items()})
            ranks.append(subprocess.Popen(self.net.inside(host) + [BUILD + "/" + line[0], *line[1:]], env=env, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        said = [r.communicate(timeout=120)[0] for r in ranks]
        return all(r.returncode == 0 for r in ranks), said[0], "".join(said)

    def results(self, **settings):
        """(whether an all-reduce is right on all ranks, what all wrote)."""
        fine, _, text = self.run("bench/allreduce_perf", "-b", "300012", "-e", "300012", "-n", "2", "-w", "1", "-c", "1",
                                 COLL_DEBUG="info", **settings)
        return fine and "Out of bounds values : 0 OK" in text, text

    def choices(self, **settings):
        return self.run("tools/coll-info", "--choices", **settings)[1]


class Report:
    passed = failed = 0

    def __call__(self, fine, what, output=""):
        print(("ok    " if fine else "FAILED") + " " + what, flush=True)
        if not fine:
            print(output[-3000:])
        Report.passed += bool(fine)
        Report.failed += not fine


def table():
    with open(TABLE) as f:
        return f.read()


def rates():
    return {h: (int(out), int(in_)) for h, out, in_ in re.findall(r"^host (\S+) out (\d+) in (\d+)", table(), re.M)}


def put(text):
    with open(TABLE, "w") as f:
        f.write(text)


def unequal(check):
    """Three hosts, and one of half their rate."""
    job = Job(network.Network(bounds.Links([[RATE]] * 3 + [[RATE // 2]]), "cubic", inward=True))
    text = job.choices()
    check("link of unknown rate" in text, "what a veth reports is nobody's word", text)
    told = ["e0:%d" % r for r in (RATE, RATE, RATE, RATE // 2)]
    text = job.choices(COLL_LINK_RATES=told)
    check("link 100 Mb/s (told by e0 of host h3), from COLL_LINK_RATES" in text, "the slowest link and who tells it", text)
    fine, text, all_of_it = job.run("tools/coll-tune", "-o", TABLE)
    check(fine and "sites: none seen" in text and "written: " + TABLE in text, "coll-tune writes a table", all_of_it)
    check("told and wrong: e0 of h0 says 10000 Mb/s" in text, "a rate that is far from what was measured", text)
    found = rates()
    check(sorted(found) == ["h0", "h1", "h2", "h3"], "with all hosts", table())
    check(all(0.4 * r < x < 2.5 * r for h, r in enumerate((RATE, RATE, RATE, RATE // 2)) for x in found["h%d" % h]),
          "and their rates", table())
    text = job.choices(COLL_TUNE_FILE=TABLE)
    check(re.search(r"link \d+ Mb/s \(measured on host h3\), from COLL_TUNE_FILE", text), "which prices take", text)
    text = job.choices(COLL_TUNE_FILE=TABLE, COLL_LINK_RATES=told)
    check("link 100 Mb/s (told by e0 of host h3), from COLL_LINK_RATES" in text, "after what the user tells", text)
    put("coll-tune 1\ntransport tcp\nhost h0 out 190 in 190\nhost h1 out 190 in 190\nhost h2 out 190 in 190\nhost h3 out 95 in 95\n")
    fine, text = job.results(COLL_TUNE_FILE=TABLE)
    said = set(re.findall(r"layout (.*?), launcher", text))
    check(fine and said == {"host(4) x rank(1), shares 1:1:1:0"}, "and the shares of hosts, alike on all ranks", text)
    put(re.sub(r"(out|in) (\d+)", lambda m: "%s %d" % (m.group(1), 3 * int(m.group(2))), table()))
    fine, text = job.results(COLL_TUNE_FILE=TABLE)
    check(fine and "COLL-5117" not in text, "a wrong table changes no result", text)
    for what, text, why in (("of other hosts", table().replace("host h2", "host x2"), "host h2 is not in it"),
                            ("of another transport", table().replace("transport tcp", "transport rdma"), "of transport rdma"),
                            ("that is none", "hosts\n", "line 1: it is no table")):
        put(text)
        fine, text = job.results(COLL_TUNE_FILE=TABLE)
        check(fine and re.search(why + r".* \[COLL-5117\]", text) and text.count("COLL-5117") == 1, "a table " + what + " is ignored", text)
    os.remove(TABLE)
    fine, text = job.results(COLL_TUNE_FILE=TABLE)
    check(fine and re.search(r"No such file.* \[COLL-5117\]", text), "and one that is not there", text)


def sited(check):
    """Two sites of two hosts behind uplinks of half of what their hosts do."""
    job = Job(network.Network(bounds.Links([[RATE]] * 4, [0, 0, 1, 1], RATE // 2), "cubic", inward=True))
    fine, text, all_of_it = job.run("tools/coll-tune", "-o", TABLE)
    check(fine and re.search(r"site 0: uplink \d+ Mb/s of payload: h0 h1\n", text) and "site 1: " in text, "sites are seen", all_of_it)
    check(all(0.4 * RATE / 2 < int(r) < 2.5 * RATE / 2 for r in re.findall(r"^site \d uplink (\d+)", table(), re.M)),
          "and their uplinks", table())
    fine, text = job.results(COLL_TUNE_FILE=TABLE)
    said = set(re.findall(r"layout (.*?), launcher", text))
    check(fine and len(said) == 1 and said.pop().startswith("site(2) x host(2) x rank(1), uplinks of "), "plans follow them", text)
    fine, text = job.results(COLL_TUNE_FILE=TABLE, COLL_SITE=["a", "b", "a", "b"])
    check(fine and "uplinks of" not in text and "site(2)" in text, "after those that the user tells", text)


def main():
    why = network.missing()
    if why or not network.allowed():
        print("skip tuned.py: %s\n0 passed, 0 failed, 1 skipped" % (why or "no network namespaces here"))
        return 77
    network.go_apart()
    check = Report()
    (unequal if sys.argv[2:] == ["unequal"] else sited)(check)
    print("%d passed, %d failed" % (check.passed, check.failed))
    return check.failed > 0


sys.exit(main())
