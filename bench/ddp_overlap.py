#!/usr/bin/env python3
"""How much of the wire time of gradients the backward pass hides, on a slow link.

usage: ddp_overlap.py BUILD-DIRECTORY [--mbit 1000] [--steps N] [--case 124M|10M|short] [--wire plain|int8|powersgd|bf16]

Two network namespaces joined by a veth pair shaped with tbf; a rank of one thread in each (root is needed). Runs ddp_gpt with
--overlap: every other step sends nothing, so that a step and the same step without communication are neighbours; and once
with nothing sent at all (--stub), for the first step. With a --wire other than plain once more as plain.
  exposed  = step - the step after it, with communication stubbed: median of --steps such pairs, and the middle half of them
  wire     = the bytes this rank sent / what a bare stream gets through the same link (measured)
  overlap  = 1 - exposed / wire
  backward = from the first bucket ready to the last one, with communication stubbed: what there is to hide behind
  on the wire = time in which both ranks had a round under way (their traces): without waiting for one another, and
             without what a wire computes
  busy     = the ranks' processor time more than in the step without communication, per rank: what of exposed is no waiting
  others   = processor time, on all cores, of processes that are neither ranks nor this program, and what a hypervisor
             took: kernel threads count as the ranks', since the wire is theirs
A pair is disturbed if what others took differs between its two steps by more than a tenth of the wire time, which may have
moved its overlap by ten points, or if it is more than three tenths in either (what they take in both steps alike cancels out,
but not wholly). Disturbed pairs are left out. If more than half of all pairs are disturbed, the run is: it says so and exits
with 3.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CASES = {
    # name: flags; tokens per rank and step
    "124M": ["--layers", "12", "--width", "768", "--heads", "12", "--context", "512", "--batch", "8", "--vocab-size", "50257"],
    "10M": ["--layers", "6", "--width", "384", "--heads", "6", "--context", "128", "--batch", "32"],
    "short": ["--layers", "12", "--width", "768", "--heads", "12", "--context", "64", "--batch", "8", "--vocab-size", "50257"],
}
MOST_DIFFERENCE, MOST = 0.1, 0.3  # of the wire time
NAMES = ["ddpa%d" % os.getpid(), "ddpb%d" % os.getpid()]
ADDRESSES = ["10.91.7.1", "10.91.7.2"]


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def lay_wire(mbit):
    for n in NAMES:
        ip("netns", "add", n)
    ip("-n", NAMES[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", NAMES[1])
    for n, a in zip(NAMES, ADDRESSES):
        ip("-n", n, "addr", "add", a + "/24", "dev", "eth0")
        ip("-n", n, "link", "set", "eth0", "up")
        ip("-n", n, "link", "set", "lo", "up")
        # A burst below 128 kB loses much of a gigabit. What an idle shaper saves up of it would go at once, which no wire
        # does: the peak rate holds it back, and a hundredth more than the rate makes good what late timers lose.
        subprocess.run(["tc", "-n", n, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "%dmbit" % mbit, "burst", "256kb",
                        "latency", "50ms", "peakrate", "%dkbit" % (1010 * mbit), "minburst", "%dkb" % max(80, 0.08 * mbit)], check=True)


def take_wire():
    for n in NAMES:
        subprocess.run(["ip", "netns", "del", n], check=False, stderr=subprocess.DEVNULL)


BARE = r'''
import socket, sys, threading, time
listen, address, total = sys.argv[1] == "listen", sys.argv[2], int(sys.argv[3])
if listen:
    s = socket.create_server((address, 7001)); s.listen(1); c, _ = s.accept()
else:
    for _ in range(100):
        try:
            c = socket.create_connection((address, 7001)); break
        except OSError:
            time.sleep(0.05)
def send():
    block, left = bytes(1 << 18), total
    while left > 0:
        left -= c.send(block[:min(left, len(block))])
t = threading.Thread(target=send); start = time.time(); t.start()
got = 0
while got < total:
    got += len(c.recv(1 << 20))
t.join()
print(total / (time.time() - start))
'''


def bare_rate():
    """Bytes per second of a stream each way at once: what an all_reduce of two ranks could have."""
    total = 64 << 20
    a = subprocess.Popen(["ip", "netns", "exec", NAMES[0], sys.executable, "-c", BARE, "listen", ADDRESSES[0], str(total)],
                         stdout=subprocess.PIPE, text=True)
    b = subprocess.Popen(["ip", "netns", "exec", NAMES[1], sys.executable, "-c", BARE, "call", ADDRESSES[0], str(total)],
                         stdout=subprocess.PIPE, text=True)
    return min(float(p.communicate(timeout=120)[0]) for p in (a, b))


def machine_s():
    """Processor time of all tasks, seconds. Interrupts count as the task they interrupt."""
    for path, pattern, unit in (("/sys/fs/cgroup/cpuacct/cpuacct.usage", r"(\d+)", 1e-9),
                                ("/sys/fs/cgroup/cpu.stat", r"usage_usec (\d+)", 1e-6)):
        try:
            with open(path, encoding="utf-8") as f:
                return unit * int(re.search(pattern, f.read()).group(1))
        except OSError:
            pass
    with open("/proc/stat", encoding="utf-8") as f:
        user, nice, system = f.readline().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def process_s(pid):
    """Processor time of a process, of any owner: its clock's number is made of the process's (clock_getcpuclockid(3))."""
    try:
        return 1e-9 * time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return 0.0


def kernel_threads():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8") as f:
                if f.read().rpartition(")")[2].split()[1] == "2":
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Others:
    """Processor time of everybody else, by step: a look whenever rank 0 says that a step has ended."""

    def __init__(self, ranks):
        self.ranks = [p.pid for p in ranks]
        self.mine = [os.getpid()] + kernel_threads()
        self.seen = [self.look()]
        self.lines = []
        self.thread = threading.Thread(target=self.follow, args=(ranks[0].stdout,))
        self.thread.start()

    def look(self):
        with open("/proc/stat", encoding="utf-8") as f:
            stolen = int(f.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
        ranks = [process_s(p) for p in self.ranks]
        return [machine_s() + stolen - sum(map(process_s, self.mine)) - sum(ranks), *ranks]

    def follow(self, lines):
        for line in lines:
            self.lines.append(line)
            if line.startswith("step "):
                self.seen.append(self.look())

    def end(self):
        """Seconds in each step (the first one from the start of the program) of others and of the ranks, and what rank 0
        said."""
        self.thread.join()
        return [[y - x for x, y in zip(a, b)] for a, b in zip(self.seen, self.seen[1:])], "".join(self.lines)


def train(build, flags, folder):
    """What rank 0 says of each step, and with it others_s."""
    port = 20000 + os.getpid() % 20000
    ranks = []
    for r, n in enumerate(NAMES):
        env = dict(os.environ, COLL_RANK=str(r), COLL_SIZE="2", COLL_ROOT="%s:%d" % (ADDRESSES[0], port), COLL_JOB_KEY="%032x" % os.getpid(),
                   COLL_HOST_ID="host%d" % r, COLL_TRANSPORTS="tcp", OPENBLAS_NUM_THREADS="1")
        env.pop("COLL_DEBUG", None)
        ranks.append(subprocess.Popen(["ip", "netns", "exec", n, "taskset", "-c", str(r % os.cpu_count()), build + "/examples/ddp_gpt", *flags,
                                       "--out", folder + "/" + str(r)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    others = Others(ranks)
    try:
        text = [ranks[1].communicate(timeout=580)[0]]
        ranks[0].wait(60)
    finally:
        for p in ranks:
            if p.poll() is None:
                p.kill()
        beside, said = others.end()
    text.append(said)
    if any(p.returncode for p in ranks):
        sys.exit("ddp_gpt failed:\n" + "\n".join(text))
    with open(folder + "/0/metrics.jsonl", encoding="utf-8") as f:
        return [dict(json.loads(line), others_s=beside[i][0], busy_s=beside[i][1:]) for i, line in enumerate(f)]


def trace_of(folder, rank):
    with open("%s/trace.%d" % (folder, rank), encoding="utf-8") as f:
        return [e for e in json.load(f)["traceEvents"] if "dur" in e]


def on_wire(folder):
    """Median over steps but the first of the time in which a round was under way on both ranks, seconds."""
    ranks = [{(e["args"]["step"], e["name"]): (e["ts"], e["ts"] + e["dur"]) for e in trace_of(folder, r) if e["cat"] == "round"}
             for r in range(2)]
    steps = {}
    for key in ranks[0]:
        steps.setdefault(key[0], []).append(tuple(max(r[key][i] for r in ranks) for i in range(2)))
    seconds = []
    for rounds in steps.values():
        total = until = 0
        for start, end in sorted(rounds):
            total += max(0, end - max(start, until))
            until = max(until, end)
        seconds.append(total / 1e6)
    return statistics.median(seconds[1:])


def backward(folder):
    """From the first bucket ready to the last, of the steps that sent nothing."""
    steps = {}
    for e in trace_of(folder, 0):
        if e["cat"] == "wire":
            steps.setdefault(e["args"]["step"], []).append(e["args"]["ready_us"])
    return statistics.median((max(s) - min(s)) / 1e6 for step, s in steps.items() if step % 2 == 0)


def pairs_of(steps):
    return list(zip(steps[::2], steps[1::2]))


def fair_pairs(steps, wire):
    """Seconds exposed of the pairs in which others took little, in order of size; and how many are left out. If that is more
    than half of them, all count: the run is disturbed, and says so."""
    every, fair = [], []
    for a, b in pairs_of(steps):
        every.append((a["ms_per_step"] - b["ms_per_step"]) / 1e3)
        beside = [a["others_s"], b["others_s"]]
        if max(beside) <= MOST * wire and max(beside) - min(beside) <= MOST_DIFFERENCE * wire:
            fair.append(every[-1])
    out = len(every) - len(fair)
    return sorted(fair if 2 * out <= len(every) else every), out


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    parse = argparse.ArgumentParser()
    parse.add_argument("build")
    parse.add_argument("--mbit", type=int, default=1000)
    parse.add_argument("--steps", type=int, help="pairs of steps (24 of 10M, else 12)")
    parse.add_argument("--case", choices=CASES, default="10M")
    parse.add_argument("--wire", default="plain")
    parse.add_argument("--flags", default="")
    parse.add_argument("--data")
    args = parse.parse_args()
    if args.steps is None:
        args.steps = 24 if args.case == "10M" else 12
    if args.steps < 1:
        parse.error("--steps: at least one pair")
    flags = [*CASES[args.case], "--log-every", "1", "--val-every", "0", "--no-sample", "--warmup", "0", "--peak-gflops", "100",
             *args.flags.split()]
    # The first pair is told apart; the last step validates, and does not count.
    pairs = ["--overlap", "--steps", str(2 * args.steps + 3)]
    mine = ["--wire", args.wire]
    order = [mine + pairs, mine + ["--stub", "--steps", "1"]] + [["--wire", "plain", *pairs]] * (args.wire != "plain")
    with tempfile.TemporaryDirectory() as folder:
        # A text of which little is validated: that is no part of what is measured.
        text = args.data or os.path.join(folder, "text")
        if not args.data:
            with open(text, "w", encoding="utf-8") as f:
                f.write(" ".join("%x" % (i * 2654435761 % 2**32) for i in range(1300)))
        flags += ["--data", text, "--trace", folder + "/trace"]
        runs, wires, behind = [], [], 0
        try:
            lay_wire(args.mbit)
            rate = bare_rate()
            for extra in order:
                runs.append(train(args.build, flags + extra, folder)[:2 * args.steps + 2])
                if "--overlap" in extra:
                    wires.append(on_wire(folder))
                    behind = behind or backward(folder)
        finally:
            take_wire()
    step, stubbed = ([m["ms_per_step"] / 1e3 for m in runs[0][i::2]] for i in range(2))
    sent = statistics.median(m["sent_bytes"] for m in runs[0][2::2])
    wire = sent / rate
    exposed, out = fair_pairs(runs[0][2:], wire)
    middle = [exposed[len(exposed) // 4], exposed[(3 * len(exposed)) // 4]]
    hidden = [100 * (1 - x / wire) for x in (statistics.median(exposed), middle[1], middle[0])]
    print("%s, %s, %d Mb/s; load %s" % (args.case, args.wire, args.mbit, open("/proc/loadavg").read().split()[0]))
    print("bare stream %.1f MB/s; sent per step %.1f MB: wire %.3f s (on the wire %.3f s); backward %.3f s" % (
        rate / 1e6, sent / 1e6, wire, wires[0], behind))
    print("others' processor time in the two steps of a pair, ms: %s; %d of %d pairs disturbed (%.0f ms apart, or %.0f in one)" % (
        " ".join("%.0f+%.0f" % tuple(1e3 * m["others_s"] for m in pair) for pair in pairs_of(runs[0][2:])), out,
        len(step) - 1, 1e3 * MOST_DIFFERENCE * wire, 1e3 * MOST * wire))
    busy = [statistics.mean(a["busy_s"]) - statistics.mean(b["busy_s"]) for a, b in pairs_of(runs[0][2:])]
    print("step %.3f s, without communication %.3f s; %d pairs: exposed %.3f s (busy %.3f s), overlap %.1f %% (%.1f to %.1f; at most %.1f %%)" % (
        statistics.median(step[1:]), statistics.median(stubbed[1:]), len(exposed), statistics.median(exposed),
        statistics.median(busy), *hidden,
        100 * min(1, behind / wire)))
    first, alone = step[0], runs[1][0]["ms_per_step"] / 1e3
    print("first step %.3f s, without communication %.3f s: overlap %.1f %%" % (first, alone, 100 * (1 - (first - alone) / wire)))
    if args.wire != "plain":
        plain_sent = statistics.median(m["sent_bytes"] for m in runs[2][2::2])
        print("beside plain: bytes %.4f, seconds on the wire %.4f (%.4f of %.4f s)" % (
            sent / plain_sent, wires[0] / wires[1], wires[0], wires[1]))
    if 2 * out > len(step) - 1:
        print("DISTURBED: others took too much of too many pairs; this run shows nothing")
        sys.exit(3)


if __name__ == "__main__":
    main()
