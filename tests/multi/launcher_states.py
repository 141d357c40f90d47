#!/usr/bin/env python3
"""SIGTERM, Ctrl-C and --timeout end collrun in whatever state it is: what its ranks do, what a remote shell does, what becomes
of its descriptors. Each state is tried with each of the three, all at once. The list is printed: how it ended, after how long.

usage: launcher_states.py BUILD-DIRECTORY [STATE]"""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from job import Report

COLLRUN = os.path.join(sys.argv[1], "tools/collrun")
LIMIT_S, READY_S, TIMEOUT_S, TOGETHER = 90, 60, 4, 45

# How a rank says that the state is reached; M is in the arguments of all processes of the test.
READY = ": >$R; "
SLEEP = "sleep 1000 & wait; :"
STAY = "while :; do sleep 1000 & wait; done"

# name: (options, program, how it is started, statuses beside that of the ender). {x}: the remote shell of that name.
RUN, IGNORES = ["sh", "-c", READY + SLEEP], ["sh", "-c", "trap '' TERM INT; " + READY + STAY]
AWAY = ["-H", "localhost:1,elsewhere:1", "--root", "127.0.0.1"]
STATES = {
    "ranks run": (["-n", "3"], RUN, None, ()),
    "ranks ignore the signals": (["-n", "3", "--grace", "1"], IGNORES, None, ()),
    "ranks are stopped": (["-n", "2"], ["sh", "-c", READY + "kill -STOP $$"], None, ()),
    "ranks of another host run": (["-H", "a:1,b:1", "--root", "127.0.0.1", "--ssh", "{works}"], RUN, None, ()),
    "a remote shell greets": (["-H", "a:1", "--ssh", "{greets}"], RUN, None, ()),
    "a remote shell greets and does no more": (["-H", "a:1", "--ssh", "{greets_only}"], RUN, None, ()),
    "a remote shell is silent": (["-H", "a:1", "--ssh", "{silent}"], RUN, None, ()),
    "a remote shell is silent, ranks here run": (AWAY + ["--ssh", "{silent}"], RUN, None, ()),
    "a remote shell ignores SIGTERM": (["-H", "a:1", "--ssh", "{deaf}"], RUN, None, ()),
    "a remote shell closes its output and stays": (AWAY + ["--grace", "0", "--ssh", "{closes}"], RUN, None, (1,)),
    "a remote shell dies, ranks here go on": (AWAY + ["--grace", "0", "--ssh", "{dies}"], RUN, None, (1,)),
    "a remote shell dies and leaves its output to others": (AWAY + ["--grace", "0", "--ssh", "{leaves}"], RUN, None, (1,)),
    "a remote shell asks for a password": (["-H", "a:1", "--ssh", "{asks}"], RUN, None, ()),
    "a remote shell sends what nobody understands": (AWAY + ["--grace", "0", "--ssh", "{garbles}"], RUN, None, (1,)),
    "a remote agent is stopped": (["-H", "a:1", "--grace", "1", "--ssh", "{works}"], ["sh", "-c", "kill -STOP $PPID; " + READY + SLEEP],
                                  None, ()),
    "the agent here is stopped": (["-n", "2", "--grace", "1"], ["sh", "-c", "kill -STOP $PPID; " + READY + SLEEP], None, ()),
    "a rank failed, others go on": (["-n", "2", "--grace", "0"],
                                    ["sh", "-c", "[ $COLL_RANK = 1 ] && exit 7; sleep 0.3; " + READY + SLEEP], None, (7,)),
    "SIGCHLD is ignored": (["-n", "2"], RUN, "chld", ()),
    "descriptors 0 to 2 are closed": (["-n", "2"], RUN, "closed", ()),
    "standard output is closed": (["-n", "2"], ["sh", "-c", "echo x; " + READY + SLEEP], "no stdout", ()),
    "standard output is full": (["-n", "2"], ["sh", "-c", READY + "exec yes"], "full", ()),
    "standard output and error are full": (["-n", "2"], ["sh", "-c", READY + "yes >&2 & exec yes"], "both full", ()),
    "ranks have ended, their output is not read": (["-n", "1"], ["sh", "-c", "seq 100000; " + READY], "full", ()),
    "the disk is full": (["-n", "2"], ["sh", "-c", READY + "echo x; " + SLEEP], "disk", ()),
    "standard input is silent": (["-n", "2"], ["sh", "-c", READY + "exec cat"], "pipe", ()),
    "standard input is not read": (["-n", "2"], RUN, "zero", ()),
    "standard input is shared": (["-n", "2"], ["sh", "-c", READY + "exec cat"], "shared", ()),
}
AGENT = '(exec sh -c "$*")'
SHELLS = {
    "works": f"shift; {AGENT}",
    "greets": f"shift; echo Welcome; printf 'Quota: 80 %% used '; {AGENT}",
    "greets_only": "echo Welcome; " + READY + SLEEP,
    "silent": READY + SLEEP,
    "deaf": "trap '' TERM HUP INT; " + READY + STAY,
    "closes": "exec >&-; trap '' TERM; " + STAY,
    "dies": "echo 'No route to host' >&2; exit 255",
    "leaves": "sleep 1000 & exit 255",
    "asks": "printf 'password: ' >&2; " + READY + "read answer </dev/tty || read answer",
    "garbles": r"printf '\001collrun agent\002\n'; yes; " + SLEEP,
}
STATUS = {"SIGTERM": 128 + signal.SIGTERM, "Ctrl-C": 128 + signal.SIGINT, "--timeout": 124}


class Case(threading.Thread):
    def __init__(self, folder, state, ender, number):
        super().__init__()
        self.folder, self.state, self.ender, self.number = folder, state, ender, number
        self.faults, self.line, self.keep = [], "", []

    def descriptors(self, how):
        """Keyword arguments of Popen, and what is closed in the child."""
        out, err = open(f"{self.folder}/{self.number}.out", "w"), open(f"{self.folder}/{self.number}.err", "w")
        self.keep += [out, err]
        words, given = [], dict(stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        if how in ("full", "both full"):
            self.keep += [os.fdopen(fd, "wb", 0) if i else os.fdopen(fd, "rb", 0) for i, fd in enumerate(os.pipe())]
            given.update(stdout=self.keep[-1], stderr=self.keep[-1] if how == "both full" else err)
        if how in ("pipe", "shared"):
            self.keep += [os.fdopen(fd, "wb", 0) if i else os.fdopen(fd, "rb", 0) for i, fd in enumerate(os.pipe())]
            given.update(stdin=self.keep[-2])
        if how == "zero":
            given.update(stdin=open("/dev/zero", "rb"))
            self.keep.append(given["stdin"])
        if how == "disk":
            given.update(stdout=open("/dev/full", "w"))
            self.keep.append(given["stdout"])
        if how in ("closed", "no stdout"):
            words = ["sh", "-c", 'exec "$@" ' + ("<&- >&- 2>&-" if how == "closed" else ">&-"), "sh"]
        return words, given

    def start(self):
        options, program, how, _ = STATES[self.state]
        words, given = self.descriptors(how)
        shells = {name: f"sh {self.folder}/{name}" for name in SHELLS}
        limit = ["--timeout", str(TIMEOUT_S)] if self.ender == "--timeout" else []
        env = {**os.environ, "R": f"{self.folder}/{self.number}.ready"}
        dispose = (lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) if how == "chld" else None
        self.begun = time.monotonic()
        self.job = subprocess.Popen(words + [COLLRUN] + limit + [o.format(**shells) for o in options] + program + [self.folder],
                                    env=env, start_new_session=True, preexec_fn=dispose, **given)
        super().start()

    def reached(self):
        """Wait for the state."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.job.poll() is None:
            if os.path.exists(f"{self.folder}/{self.number}.ready"):
                time.sleep(0.3)  # full pipes, and text on its way
                return
            time.sleep(0.02)
        if self.job.poll() is None:
            self.faults.append("the state was not reached")

    def run(self):
        allowed = {STATUS[self.ender]} | set(STATES[self.state][3])
        if self.ender != "--timeout":
            self.reached()
            self.begun = time.monotonic()
            if self.ender == "Ctrl-C":
                os.killpg(self.job.pid, signal.SIGINT)
            else:
                self.job.terminate()
        try:
            status = self.job.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            status = "it hangs"
            self.job.kill()
            self.job.wait()
        if status not in allowed:
            self.faults.append(f"ended by {self.ender}: status {status}, expected {' or '.join(map(str, sorted(allowed)))}")
        self.line = f"{self.state:55} {self.ender:10} status {status}, {time.monotonic() - self.begun:.1f} s"
        for f in self.keep:
            f.close()


def left(folder):
    """Processes of the test that are there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if folder.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def main():
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="launcher_states_") as folder:
        for name, text in SHELLS.items():
            with open(f"{folder}/{name}", "w") as f:
                f.write(text + "\n")
        states = [s for s in STATES if only in s]
        cases = [Case(folder, s, e, i) for i, (s, e) in enumerate((s, e) for s in states for e in STATUS)]
        for first in range(0, len(cases), TOGETHER):
            for c in cases[first:first + TOGETHER]:
                c.start()
            for c in cases[first:first + TOGETHER]:
                c.join()
        for s in states:
            report.case(s, [f for c in cases if c.state == s for f in c.faults])
        print(*(c.line for c in cases), sep="\n")
        until = time.monotonic() + 20
        while left(folder) and time.monotonic() < until:
            time.sleep(0.1)
        report.case("nothing is left behind", [f"{len(left(folder))} processes are left"] if left(folder) else [])
    return report.close()


sys.exit(main())
