#!/usr/bin/env python3
"""Jobs that hang or fail, and what is said about them: warnings, dumps, coll-info --pid,
coll-trace. usage: diagnosis.py BUILD-DIRECTORY"""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import job as jobs
from wires import Wires, missing

GUIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/guide/diagnosis.md")

BUILD = os.path.abspath(sys.argv[1])
COLL_INFO = f"{BUILD}/tools/coll-info"
COLL_TRACE = f"{BUILD}/tools/coll-trace"
SEED = int.from_bytes(os.urandom(4), "little")

# What a line must have, by its type.
REQUIRED = {
    "context": {"format", "library", "reason", "process", "processes", "pid", "host", "job", "now_ns", "born_ns",
                "error"},
    "comm": {"comm", "rank", "size", "operations", "unrecorded", "sequence", "in_call", "aborted"},
    "op": {"comm", "index", "sequence", "kind", "count", "dtype", "signature", "stream", "state", "queued_ns"},
    "peer": {"process", "pid", "host", "left", "unanswered"},
    "note": {"about", "process", "origin", "comm", "status", "text"},
    "end": {"ops"},
}


class Stall:
    """A job of stalls processes under collrun."""

    def __init__(self, mode, ranks, transport, **settings):
        self.directory = tempfile.TemporaryDirectory()
        self.path = self.directory.name
        self.stop_file = self.path + "/stop"
        self.out_path, self.err_path = self.path + "/out", self.path + "/err"
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update({"COLL_TRANSPORTS": transport, "COLL_DUMP_FILE": self.path + "/dump.%r"}, **settings)
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.launcher = subprocess.Popen([f"{BUILD}/tools/collrun", "-n", str(ranks), "--no-prefix",
                                              f"{BUILD}/tests/stalls", mode, self.stop_file], stdout=out,
                                             stderr=err, env=env)
        self.ranks = ranks

    def lines(self, path, word):
        with open(path) as f:
            return [x for x in f.read().splitlines() if word in x]

    def running(self):
        found = jobs.until(lambda: len(self.lines(self.out_path, "running")) == self.ranks, 30)
        assert found, "the ranks did not start: " + open(self.err_path).read()
        self.pids = {int(w[1]): int(w[2]) for w in (x.split() for x in self.lines(self.out_path, "running"))}

    def warnings(self):
        """rank that warns -> text"""
        return {int(m.group(1)): m.group(2) for m in
                (re.match(r"coll\[(\d+)/\d+\] warn: (.*)", x) for x in self.lines(self.err_path, "waiting")) if m}

    def without_id(self):
        """Errors and warnings that end in no id: none."""
        return [x for x in self.lines(self.err_path, "coll[")
                if re.match(r"coll\[[^\]]*\] (error|warn): ", x) and not re.search(r" \[COLL-\d{4}\]$", x)]

    def dumps(self, rank):
        try:
            with open(f"{self.path}/dump.{rank}") as f:
                return [json.loads(x) for x in f.read().splitlines()]
        except (FileNotFoundError, json.JSONDecodeError):
            return []

    def end(self, stop=True):
        if stop:
            open(self.stop_file, "w").close()
        try:
            status = self.launcher.wait(30)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            status = None
        return status


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def stuck(s, seconds=20):
    """coll-info on the launcher, as soon as all ranks but one are held up."""
    found = []

    def look():
        found[:] = [run(COLL_INFO, "--pid", str(s.launcher.pid))]
        return found[0].stdout.count("waits for rank") >= s.ranks - 1 and "last seen" in found[0].stdout

    jobs.until(look, seconds)
    return found[0]


def plain(text):
    """Without what differs from run to run, and by algorithm: whom a rank waits for, and what it says of that one."""
    text = re.sub(r"pid \d+, host [^)]*\)", "pid P, host H)", text)
    text = re.sub(r" s by [a-z-]+, waits", " s by WAY, waits", text)
    text = re.sub(r"waits for rank \d+ in step \d+ of lane \d+\n    rank \d+ is alive, .*", "waits", text)
    return re.sub(r"\b\d+\.\d s", "T s", text)


def want(faults, condition, text):
    if not condition:
        faults.append(text)


def sleeper(transport):
    """One rank sleeps: it is the one that is named."""
    faults = []
    s = Stall("sleep", 4, transport, COLL_WARN_MS="700")
    s.running()
    r = stuck(s)
    verdict = r.stdout.splitlines()[-1] if r.stdout else ""
    name = rf"rank 3 \(pid {s.pids[3]}, host [^)]*\)"
    want(faults, r.returncode == 1, f"coll-info ended with {r.returncode}: {r.stderr}")
    want(faults, re.fullmatch(rf"verdict: {name} has not entered all_reduce\(count=16, f32, sum\) number 4 that "
                              r"ranks 0,1,2 wait in for \d+\.\d s", verdict), f"verdict: {verdict}")
    for rank in range(3):
        want(faults, re.search(rf"^rank {rank} \(pid {s.pids[rank]}, .*: in all_reduce\(.*\) number 4 for .* s by [a-z-]+, waits "
                               r"for rank \d in step", r.stdout, re.M), f"rank {rank} is not shown as waiting")
    want(faults, re.search(rf"^{name}: in no call for .* s; the last was all_reduce\(.*\) number 3$", r.stdout, re.M),
         "what the sleeper did last is not shown")
    want(faults, "rank 3 is alive, not in the call, last seen after all_reduce(" in r.stdout, "no hearsay")
    # The guide shows a plan; by hand ranks wait in no step.
    if transport != "shm":
        guide = plain(open(GUIDE).read())
        want(faults, plain(r.stdout) in guide, "the guide shows something else")
    # The same by way of one rank.
    one = run(COLL_INFO, "--pid", str(s.pids[1]))
    want(faults, re.sub(r"\d+\.\d s", "", one.stdout.splitlines()[-1]) == re.sub(r"\d+\.\d s", "", verdict),
         f"by one rank: {one.stdout}")
    jobs.until(lambda: len(s.warnings()) == 3, 15)
    for rank in range(3):
        text = s.warnings().get(rank, "")
        want(faults, re.search(r"rank 3.*: alive, last seen after all_reduce\(.*\) number 3|which is alive, last seen "
                               r"after all_reduce\(.*\) number 3", text), f"rank {rank} warned: {text}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    want(faults, not s.without_id(), f"no id: {s.without_id()}")
    want(faults, all(" [COLL-5101]" in w for w in s.warnings().values()), f"the wrong id: {s.warnings()}")
    if faults:
        faults += r.stdout.splitlines()
    return faults


def chain(transport):
    """0 waits for 1, who waits for 2, who waits for 3, who sleeps: it leads to 3."""
    faults = []
    s = Stall("chain", 4, transport, COLL_WARN_MS="700")
    s.running()
    r = stuck(s)
    verdict = r.stdout.splitlines()[-1] if r.stdout else ""
    want(faults, re.search(rf"verdict: rank 3 \(pid {s.pids[3]}, .*\) has not made the call that matches recv\(count=1, "
                           r"f32, peer=3\) .*"
                           r"that ranks 0,1,2 wait in for", verdict), f"verdict: {verdict}")
    jobs.until(lambda: len(s.warnings()) == 3, 15)
    w = s.warnings()
    for rank in range(3):
        links = [f"waiting \\d+ s for rank {rank + 1} on host .*: alive, "]
        links += [f"in recv\\(.*\\), waits for rank {k + 1}, which is alive, " for k in range(rank + 1, 3)]
        want(faults, re.search("".join(links) + "last seen after no call yet", w.get(rank, "")),
             f"rank {rank} warned: {w.get(rank)}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    if faults:
        faults += r.stdout.splitlines()
    return faults


def stopped():
    """A rank that is stopped: told so, asked by the launcher or by that very rank."""
    faults = []
    s = Stall("sleep", 3, "shm")
    s.running()
    os.kill(s.pids[2], signal.SIGSTOP)
    try:
        pattern = (rf"verdict: rank 2 \(pid {s.pids[2]}, host [^)]*\) is stopped, by a signal \(kill -CONT {s.pids[2]} "
                   r"continues it\) or by a debugger; ranks 0,1 wait for it in all_reduce\(count=16, f32, sum\) number 4 "
                   r"for \d+\.\d s")
        for pid in (s.launcher.pid, s.pids[2]):
            r = [None]

            def look():
                r[0] = run(COLL_INFO, "--pid", str(pid))
                return r[0].returncode == 1 and re.fullmatch(pattern, r[0].stdout.splitlines()[-1])

            want(faults, jobs.until(look, 20), f"asked of {pid}: {r[0].stdout} {r[0].stderr}")
        want(faults, f"process {s.pids[2]} is stopped" in run(COLL_TRACE, "--pid", str(s.launcher.pid)).stderr,
             "coll-trace does not say who is missing")
    finally:
        os.kill(s.pids[2], signal.SIGCONT)
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


def elsewhere():
    """Two hosts: the verdict is that of the job on both, though each sees its own processes only."""
    faults = []
    wire = Wires("10.77")
    assert wire.good, "the namespaces could not be made"
    with tempfile.TemporaryDirectory() as d:
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("COLL_")}, "COLL_SIZE": "3",
               "COLL_ROOT": f"{wire.address(0, 0)}:7777", "COLL_JOB_KEY": "5" * 32}
        ranks = [subprocess.Popen(["ip", "netns", "exec", wire.names[r == 2], f"{BUILD}/tests/stalls", "sleep", d + "/stop"],
                                  env={**env, "COLL_RANK": str(r)}, stdout=subprocess.DEVNULL) for r in range(3)]

        def asked(side, rank, pattern):
            r = [None]

            def look():
                r[0] = run("ip", "netns", "exec", wire.names[side], COLL_INFO, "--pid", str(ranks[rank].pid))
                return r[0].returncode == 1 and re.search(pattern, r[0].stdout, re.M)

            want(faults, jobs.until(look, 20), f"asked on host {side}: {r[0].returncode} {r[0].stdout} {r[0].stderr}")

        name = rf"^verdict: rank 2 \(pid {ranks[2].pid}[^)]*\) "
        for side, rank in ((0, 1), (1, 2)):
            asked(side, rank, name + r"has not entered all_reduce\(.*\) number 4 that ranks 0,1 wait in for ")
        os.kill(ranks[2].pid, signal.SIGSTOP)
        asked(0, 0, name + "does not answer")
        asked(1, 2, name + r"is stopped, .*; no other rank is here: ask on another host")
        os.kill(ranks[2].pid, signal.SIGCONT)
        open(d + "/stop", "w").close()
        want(faults, [p.wait(30) for p in ranks] == [0, 0, 0], "the job did not end well")
    wire.close()
    return faults


def halves():
    """A rank waits in another communicator for the one to blame."""
    faults = []
    s = Stall("halves", 4, "shm")
    s.running()
    r = stuck(s)
    want(faults, re.fullmatch(rf"verdict: rank 2 \(pid {s.pids[2]}, host [^)]*\) has not entered all_reduce\(count=32, f32, "
                              r"sum\) number 2 of communicator [0-9a-f]{8} \(ranks 2,3\) that ranks 0,1,3 wait in for "
                              r"\d+\.\d s", r.stdout.splitlines()[-1]), r.stdout)
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


def gone_after_an_error():
    """A rank is asked that has no part in the error after which the others have ended."""
    faults = []
    s = Stall("left", 3, "shm")
    s.running()
    found = []

    def look():
        found[:] = [run(COLL_INFO, "--pid", str(s.pids[1]))]
        return found[0].returncode == 1

    want(faults, jobs.until(look, 20) and
         re.search(r"^verdict: rank [02] .*left after an error: .*calls differ: .*count=1[67]", found[0].stdout, re.M),
         f"{found[0].returncode}: {found[0].stdout} {found[0].stderr}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


def overlap(calls, a, b):
    """Whether calls of two tracks of rank 0 were under way at the same time."""
    spans = [[(e["ts"], e["ts"] + e["dur"]) for e in calls if e["pid"] == 0 and e["tid"] == t] for t in (a, b)]
    return any(x[0] < y[1] and y[0] < x[1] for x in spans[0] for y in spans[1])


def streams(transport):
    """Asynchronous calls on two streams, one of which a rank does not feed. With a progress
    thread: else the other stream stands still with the rank."""
    faults = []
    s = Stall("streams", 3, transport, COLL_PROGRESS="on")
    s.running()
    r = stuck(s)
    want(faults, re.search(rf"^verdict: rank 2 \(pid {s.pids[2]}, host [^)]*\) has not entered all_reduce\(count=100, f32, max\) "
                           r"number 5 of communicator [0-9a-f]{8} \(ranks 0,1,2\) in stream 2 that ranks 0,1 wait in for ",
                           r.stdout, re.M), r.stdout)
    want(faults, r.stdout.count("1 more operations wait in streams") >= 2, f"queued: {r.stdout}")
    live = run(COLL_TRACE, "--pid", str(s.launcher.pid))
    calls, marks = check_trace(live.stdout, 3, faults)
    names = {e["tid"]: e["args"]["name"] for e in json.loads(live.stdout)["traceEvents"]
             if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 0}
    tracks = [t for t, n in names.items() if re.search(r"stream [12]$", n)]
    want(faults, len(tracks) == 2 and overlap(calls, *tracks), f"streams do not overlap: {names}")
    want(faults, any(e["cat"] == "queued" and e["pid"] == 0 for e in marks), "nothing is queued")
    for p in range(3):
        os.kill(s.pids[p], signal.SIGUSR1)
    want(faults, jobs.until(lambda: all(s.dumps(p) for p in range(3)), 10), "no dump came")
    for p in range(3):
        check_lines(s.dumps(p), faults)
        states = [x["state"] for x in operations(s.dumps(p)).values()]
        want(faults, states.count("queued") == (0 if p == 2 else 1), f"rank {p}: {states}")
        for x in operations(s.dumps(p)).values():
            times = [x[k] for k in ("queued_ns", "begin_ns", "end_ns") if k in x]
            known = {"queued": 1, "running": 2, "ended": 3}[x["state"]]
            want(faults, times == sorted(times) and len(times) == known, f"rank {p}: {x}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


# What each rank of the mode tags has on record: kind, peer, tag, count and state, without the receive of nobody.
TAGGED = [{("send_tag", 1, 5, 2, "ended"), ("send_tag", 1, 7, 3, "ended"), ("send_tag", 1, 6, 300000, "ended"), ("recv_tag", 2, 9, 1, "running")},
          {("irecv", -1, 5, 2, "ended"), ("recv_tag", 0, 6, 300000, "ended"), ("recv_tag", -1, 7, 3, "ended"),
           ("recv_tag", -1, -1, 4, "running")}, set()]


def tagged(transport):
    """Messages with tags, short and long, of any source, posted and waited for."""
    faults = []
    s = Stall("tags", 3, transport)
    s.running()
    found = []
    patterns = [rf"^rank 0 \(pid {s.pids[0]}, .*\): in recv_tag\(count=1, f32, peer=2, tag=9\) for \S+ s by send-recv, waits for rank 2 ",
                rf"^rank 1 \(pid {s.pids[1]}, .*\): in recv_tag\(count=4, f32, any source, any tag\) for \S+ s by send-recv$",
                rf"^rank 2 \(pid {s.pids[2]}, .*\): no call yet$",
                rf"^verdict: rank 2 \(pid {s.pids[2]}, .*\) has not made the call that matches recv_tag\(count=1, f32, "
                r"peer=2, tag=9\) that rank 0 waits in for "]

    def look():
        found[:] = [run(COLL_INFO, "--pid", str(s.launcher.pid)).stdout]
        return all(re.search(p, found[0], re.M) for p in patterns)

    want(faults, jobs.until(look, 20), f"coll-info: {found[0]}")
    want(faults, len(re.findall(r"^    1 receive is posted, the oldest for \S+ s: irecv\(count=1, f32, any source, "
                                r"tag=99\)$", found[0], re.M)) == 3, f"posted: {found[0]}")
    for p in range(3):
        os.kill(s.pids[p], signal.SIGUSR1)
    want(faults, jobs.until(lambda: all(s.dumps(p) for p in range(3)), 10), "no dump came")
    for p in range(3):
        check_lines(s.dumps(p), faults)
        ops = {(x["kind"], x["peer"], x["tag"], x["count"], x["state"]) for x in operations(s.dumps(p)).values()}
        want(faults, ops == TAGGED[p] | {("irecv", -1, 99, 1, "running")}, f"rank {p}: {ops}")
    want(faults, any(x["tag"] == 7 and x.get("quick") for x in operations(s.dumps(1)).values()),
         "a receive whose message is here is no quick call")
    trace = run(COLL_TRACE, *(f"{s.path}/dump.{r}" for r in range(3)))
    calls, _ = check_trace(trace.stdout, 3, faults)
    shown = {(e["name"], e["cat"], str(e["args"]["peer"]), str(e["args"]["tag"])) for e in calls}
    want(faults, shown == {("send_tag", "pair", "1", "5"), ("send_tag", "pair", "1", "7"), ("send_tag", "pair", "1", "6"),
                           ("recv_tag", "pair", "2", "9"), ("recv_tag", "pair", "any source", "7"),
                           ("irecv", "pair", "any source", "5"), ("recv_tag", "pair", "0", "6"),
                           ("recv_tag", "pair", "any source", "any tag"), ("irecv", "pair", "any source", "99")},
         f"trace: {shown}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


def foreign():
    """Files that are damaged, cut, foreign or huge: told, and the others are used."""
    faults = []
    good = made_up(0, "a", 0, 30)
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        def trace(*texts):
            for i, text in enumerate(texts):
                with open(f"{d}/{i}", "wb") as f:
                    f.write(text if isinstance(text, bytes) else text.encode())
            return run(COLL_TRACE, *(f"{d}/{i}" for i in range(len(texts))))

        r = trace(good, b"\x7fELF\0\0garbage", os.urandom(5000), b"")
        want(faults, r.returncode == 1 and len(check_trace(r.stdout, 1, faults)[0]) == 30 and
             r.stderr.count("no line begins a dump") == 3, f"good among bad: {r.stderr}")
        for cut in range(1, len(good), 97):
            r = trace(good[:cut])
            want(faults, r.returncode in (0, 1), f"cut at {cut}: {r.returncode} {r.stderr}")
            if r.returncode == 0:
                json.loads(r.stdout)
                want(faults, "breaks off" in r.stderr, f"cut at {cut}: silent")
        for i in range(300):
            text = bytearray(good, "ascii")
            for _ in range(rng.randrange(1, 20)):
                text[rng.randrange(len(text))] = rng.choice(b'{}[]",:\\-0123456789e\0\xff\n\x1b')
            r = trace(bytes(text))
            want(faults, r.returncode in (0, 1), f"damage {i} seed {SEED}: {r.returncode} {r.stderr}")
            if r.returncode == 0:
                json.loads(r.stdout)
        # A dump that broke off in a line, and the next one behind it in the same file.
        r = trace(good[:len(good) // 2] + made_up(1, "a", 0, 10))
        want(faults, r.returncode == 0 and len([e for e in check_trace(r.stdout, 2, faults)[0] if e["pid"] == 1]) == 10,
             f"behind a broken one: {r.stderr}")
        huge = good.replace('"type":"op"', '"type":"comm","size":2147483647,"members":[1,2],"x":"op"', 1)
        want(faults, trace(huge).returncode == 0, "a size too large")
        for number in ("-1", "99999999999999999999999999", "1e400", '"text"', "null"):
            r = trace(re.sub(r'"(begin_ns|process|now_ns|stream)":-?\d+', rf'"\1":{number}', good))
            want(faults, r.returncode == 0, f"{number}: {r.returncode} {r.stderr}")
            json.loads(r.stdout)
        # Many ranks, one file each; all of an operation at once on one stream.
        r = trace(*(made_up(i, f"h{i % 64}", 0, 3) for i in range(2000)))
        want(faults, r.returncode == 0 and len(check_trace(r.stdout, 2000, faults)[0]) == 6000, f"many: {r.stderr}")
        r = trace(made_up(0, "a", 0, 300, overlap=10 ** 10))
        calls, _ = check_trace(r.stdout, 1, faults)
        want(faults, len({e["tid"] for e in calls}) == 300, "300 at once need 300 tracks")
    return faults


def check_lines(lines, faults):
    for x in lines:
        missing = REQUIRED.get(x.get("type"), {"type"}) - x.keys()
        want(faults, not missing, f"{x} lacks {missing}")
        if x.get("type") == "op" and x["state"] == "ended" and x["status"] == 0:
            want(faults, x.get("way"), f"{x} does not say which way it went")
    want(faults, lines and lines[0]["type"] == "context" and lines[-1]["type"] == "end", "no beginning or no end")


def operations(lines):
    return {(x["comm"], x["index"]): x for x in lines if x["type"] == "op"}


def check_trace(text, ranks, faults):
    """A trace that Perfetto opens: well formed, its operations those of the dumps."""
    trace = json.loads(text)
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    calls = [e for e in events if e["ph"] == "X"]
    want(faults, set(names) == set(range(ranks)), f"processes: {names}")
    for e in calls:
        want(faults, {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"} <= e.keys() and e["ts"] >= 0 and
             e["dur"] >= 0 and (e["pid"], e["tid"]) in threads, f"a bad event: {e}")
    for e in events:
        want(faults, e["ph"] in "MXi" and (e["ph"] != "i" or e["s"] in "tp"), f"a bad event: {e}")
    for place in threads:
        # To the nanosecond: Perfetto drops what crosses.
        mine = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in calls if (e["pid"], e["tid"]) == place)
        want(faults, all(a[0] + a[1] <= b[0] for a, b in zip(mine, mine[1:])), f"events of {place} overlap")
    return calls, [e for e in events if e["ph"] == "i"]


def signalled(transport):
    """SIGUSR1 makes each rank append a dump; coll-trace puts them together."""
    faults = []
    s = Stall("sleep", 3, transport)
    s.running()
    stuck(s)
    for _ in range(2):
        before = {r: len(s.dumps(r)) for r in range(3)}
        for r in range(3):
            os.kill(s.pids[r], signal.SIGUSR1)
        want(faults, jobs.until(lambda: all(len(s.dumps(r)) > before[r] for r in range(3)), 10), "no dump came")
    for r in range(3):
        lines = s.dumps(r)
        heads = [i for i, x in enumerate(lines) if x["type"] == "context"]
        want(faults, len(heads) == 2, f"rank {r}: {len(heads)} dumps")
        want(faults, all(lines[i]["reason"] == "signal" and lines[i]["process"] == r and
                         lines[i]["pid"] == s.pids[r] for i in heads), f"rank {r}: wrong heads")
        check_lines(lines[:heads[1]], faults)
        ops = operations(lines)
        want(faults, len(ops) == (3 if r == 2 else 4), f"rank {r}: {len(ops)} operations")
        for x in ops.values():
            ended = x["sequence"] < 4
            want(faults, x["kind"] == "all_reduce" and x["count"] == 16 and x["dtype"] == "f32" and
                 x["op"] == "sum" and x["state"] == ("ended" if ended else "running") and
                 (x["status"] == 0 and x["end_ns"] >= x["begin_ns"] if ended else x["waits_for"] in (0, 1, 2)),
                 f"rank {r}: {x}")
    trace = run(COLL_TRACE, *(f"{s.path}/dump.{r}" for r in range(3)))
    calls, troubles = check_trace(trace.stdout, 3, faults)
    want(faults, trace.returncode == 0 and len(calls) == 11, f"{len(calls)} operations in the trace: {trace.stderr}")
    want(faults, sorted(e["pid"] for e in troubles) == [0, 1], f"troubles: {troubles}")
    # Everybody was there when the third ended anywhere, and its stamps say so: a millisecond for the clocks. A call too
    # short to be timed has one stamp, taken behind its send: a rank that loses its core between the two stamps late.
    third = [e for e in calls if e["args"]["sequence"] == 3 and e["dur"] > 0]
    want(faults, not third or max(e["ts"] for e in third) <= min(e["ts"] + e["dur"] for e in third) + 1000, f"clocks: {third}")
    # The same asked of the processes.
    live = run(COLL_TRACE, "--pid", str(s.launcher.pid))
    want(faults, live.returncode == 0 and len(check_trace(live.stdout, 3, faults)[0]) == 11, f"live: {live.stderr}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    return faults


def blamed():
    """Ranks that fail because of a rank that lives ask it for its dump: it tells what it did last."""
    faults = []
    s = Stall("sleep", 3, "shm", COLL_ARRIVAL_TIMEOUT_MS="3000")
    s.running()
    want(faults, jobs.until(lambda: any(x["type"] == "context" and x["reason"] == "blamed" for x in s.dumps(2)), 30), "rank 2 wrote no dump")
    s.end()
    heads = [x["reason"] for x in s.dumps(2) if x["type"] == "context"]
    want(faults, heads.count("blamed") == 1 and len([x for x in s.dumps(2) if x["type"] == "op"]) >= 3, f"dumps of rank 2: {heads}")
    return faults


def failure(transport):
    """A call that differs: each rank writes one dump, with the error, without being asked."""
    faults = []
    s = Stall("differ", 3, transport)
    want(faults, s.end(stop=False) not in (0, None), "the job did not fail")
    errors = s.lines(s.err_path, "] error: ") + s.lines(s.out_path, "error ")
    want(faults, len(errors) >= 3 and any("] error: " in x for x in errors) and all(x.endswith(" [COLL-3101]") for x in errors), f"ids: {errors}")
    want(faults, not s.without_id(), f"no id: {s.without_id()}")
    late = 0
    for r in range(3):
        lines = s.dumps(r)
        want(faults, lines, f"rank {r} wrote no dump")
        if not lines:
            continue
        check_lines(lines, faults)
        heads = [x for x in lines if x["type"] == "context"]
        want(faults, len(heads) == 1 and heads[0]["reason"] == "failure" and "calls differ" in heads[0]["error"],
             f"rank {r}: {heads}")
        fourth = [x for x in operations(lines).values() if x["sequence"] == 4]
        # Rank 2 differs from either of the others: the third may hear of it before it has come to its fourth call.
        late += r != 2 and not fourth
        want(faults, (late == 1 and not fourth) or len(fourth) == 1 and fourth[0]["count"] == (17 if r == 2 else 16),
             f"rank {r}: {fourth}")
    trace = run(COLL_TRACE, *(f"{s.path}/dump.{r}" for r in range(3)))
    want(faults, trace.returncode == 0, trace.stderr)
    if trace.returncode == 0:
        calls, troubles = check_trace(trace.stdout, 3, faults)
        want(faults, len(calls) == 12 - late and troubles, f"{len(calls)} operations, troubles: {troubles}")
    return faults


def ask(name, request, seconds=10):
    """What a door says; None: it hung up at once or said nothing."""
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(seconds)
        text = b""
        try:
            c.connect(name)
            c.sendall(request)
            while x := c.recv(65536):
                text += x
        except OSError:
            pass
        return text


def doors():
    """Strangers at the doors: silent, babbling, of another user; the job and others notice nothing."""
    faults = []
    s = Stall("sleep", 2, "shm")
    s.running()
    name = f"\0libcoll.{s.pids[0]}.0.0"
    silent = []
    for _ in range(50):
        c = socket.socket(socket.AF_UNIX)
        c.setblocking(False)
        try:
            c.connect(name)
        except OSError:
            pass
        silent.append(c)
    want(faults, jobs.until(lambda: b'"type":"end"' in ask(name, b"state\n"), 15), "silent strangers keep others out")
    want(faults, f"rank 0 (pid {s.pids[0]}" in run(COLL_INFO, "--pid", str(s.launcher.pid)).stdout,
         "coll-info was kept out")
    for nonsense in (b"give\n", b"x" * 4096, b"\0\0\0\n", b"state"):
        want(faults, ask(name, nonsense, 2).count(b'"type":"end"') == 0, f"{nonsense[:8]} was answered")
    # Asks, and never reads.
    deaf = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for c in deaf:
        try:
            c.setblocking(False)
            c.connect(name)
            c.send(b"dump\n")
        except OSError:
            pass
    want(faults, jobs.until(lambda: b'"type":"end"' in ask(name, b"state\n"), 15), "deaf strangers keep others out")
    if os.geteuid() == 0:
        code = ("import os,socket\nos.setgid(65534); os.setuid(65534)\n"
                f"c = socket.socket(socket.AF_UNIX); c.connect({name!r})\n"
                "try: c.sendall(b'state\\n'); print(len(c.recv(100)))\nexcept OSError: print(0)\n")
        want(faults, run(sys.executable, "-c", code).stdout.strip() == "0", "another user was answered")
        # The build may be where that user cannot go.
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            r = subprocess.run([shutil.copy(COLL_INFO, place), "--pid", str(s.launcher.pid)], user=65534, group=65534,
                               extra_groups=[], cwd=place, capture_output=True, text=True, timeout=60)
        want(faults, r.returncode == 2 and "belongs to user 0 and answers only that user and root" in r.stdout,
             f"another user hears: {r.stdout} {r.stderr}")
    want(faults, s.end() == 0, "the job did not end well: " + open(s.err_path).read())
    for c in silent + deaf:
        c.close()
    return faults


def nobody():
    faults = []
    for pid, text in ((os.getpid(), "neither process"), (2 ** 22 - 1, "there is no process")):
        r = run(COLL_INFO, "--pid", str(pid))
        want(faults, r.returncode == 2 and text in r.stderr, f"{pid}: {r.returncode} {r.stderr}")
    for bad in (["--pid", "x"], ["--pid"], ["--pid", "12x"], ["--pid", "-1"], ["--pid", "9" * 20]):
        want(faults, run(COLL_INFO, *bad).returncode == 2, f"{bad} was accepted")
    return faults


def documented():
    """The guide has every member of every line."""
    guide = open(GUIDE).read()
    return [f"{kind}: {x} is not in the guide" for kind, members in REQUIRED.items()
            for x in members if not re.search(rf"\| `{kind}` .*`{x}`", guide)]


def line(**members):
    return json.dumps(members, separators=(",", ":")) + "\n"


def made_up(process, host, shift_ns, calls, overlap=0):
    """A dump: calls every millisecond of 0.1 ms, stamps shifted."""
    t0 = 1_700_000_000_000_000_000 + shift_ns
    text = line(type="context", format=1, library="0", reason="asked", process=process, processes=2, pid=9,
                host=host, job="1f", now_ns=t0 + 10 ** 9, born_ns=t0, error="")
    for i in range(calls):
        begin = t0 + i * 10 ** 6 + process * 1000
        text += line(type="op", comm="ab", index=i, sequence=i + 1, kind="all_reduce", count=4, dtype="f32", op="sum",
                     root=0, signature="0", stream=-1, state="ended", queued_ns=begin, begin_ns=begin,
                     end_ns=begin + 100_000 + overlap, status=0, result="success")
    return text + line(type="end", ops=calls)


def clocks():
    """Hosts whose calendars differ are moved until no call ends before it has begun elsewhere."""
    faults = []
    with tempfile.TemporaryDirectory() as d:
        for host, shift in (("b", 5 * 10 ** 9), ("b", -7 * 10 ** 6), ("a", 5 * 10 ** 9), ("b", 20_000)):
            for r, text in enumerate((made_up(0, "a", 0, 50), made_up(1, host, shift, 50))):
                with open(f"{d}/{r}", "w") as f:
                    f.write(text)
            for option in ([], ["--no-align"]):
                r = run(COLL_TRACE, *option, f"{d}/0", f"{d}/1")
                calls, _ = check_trace(r.stdout, 2, faults)
                first = {e["pid"]: e["ts"] for e in calls if e["args"]["sequence"] == 1}
                moved = not option and host == "b" and abs(shift) > 10 ** 5
                off = abs(first[1] - first[0] - (1 + (0 if moved else shift * 1e-3)))
                want(faults, len(calls) == 100 and off < (100 if moved else 0.01) and
                     ("corrected" in r.stderr) == moved, f"{host} {shift} {option}: off by {off} us: {r.stderr}")
        # Operations at the same time go to threads of their own; a line that breaks off loses itself only.
        with open(f"{d}/0", "w") as f:
            f.write(made_up(0, "a", 0, 20, overlap=10 ** 6)[:-60])
        r = run(COLL_TRACE, f"{d}/0")
        calls, _ = check_trace(r.stdout, 1, faults)
        want(faults, len(calls) == 19 and len({e["tid"] for e in calls}) == 2, f"{len(calls)} {r.stderr}")
        with open(f"{d}/0", "w") as f:
            f.write("nonsense\n{\"type\":\n[1,2]\n")
        want(faults, run(COLL_TRACE, f"{d}/0").returncode == 1 and run(COLL_TRACE, f"{d}/none").returncode == 1,
             "nonsense was taken for a dump")
    return faults


def main():
    report = jobs.Report()
    for transport in ("shm", "tcp"):
        for case in (sleeper, chain, streams, tagged, signalled, failure):
            report.case(f"{case.__name__} {transport}", case(transport))
    for case in (stopped, halves, blamed, gone_after_an_error, doors, nobody, documented, foreign, clocks) + ((elsewhere,) if not missing() else ()):
        report.case(case.__name__, case())
    return report.close()


sys.exit(main())
