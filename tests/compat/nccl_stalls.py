#!/usr/bin/env python3
"""An NCCL program whose last rank does not come: the others warn, and coll-info names it, whether they wait in a call, in
a group of messages, or in the launch of a graph. usage: nccl_stalls.py BUILD-DIRECTORY MODE ..."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../multi"))
import job as jobs

BUILD = os.path.abspath(sys.argv[1])
RANKS = 3
VERDICT = {"call": "has not entered all_reduce(", "group": "has not made the call that matches", "graph": "has not entered all_reduce("}


def warned(path):
    with open(path) as f:
        return sorted(set(re.findall(r"^coll\[(\d)/\d+\] warn: waiting .* for rank 2 on host .*: alive, last seen after all_reduce\(",
                                     f.read(), re.M)))


def stall(mode):
    faults = []
    with tempfile.TemporaryDirectory() as directory:
        stop, out = directory + "/stop", directory + "/out"
        with open(out, "w") as f:
            launcher = subprocess.Popen([f"{BUILD}/tools/collrun", "-n", str(RANKS), "--no-prefix", f"{BUILD}/tests/compat/nccl_stalls",
                                         mode, stop], stdout=f, stderr=f, env={**os.environ, "COLL_WARN_MS": "700"})
        if not jobs.until(lambda: warned(out) == ["0", "1"], 40):
            faults.append(f"ranks that warn of rank 2: {warned(out)}")
        report = subprocess.run([f"{BUILD}/tools/coll-info", "--pid", str(launcher.pid)], capture_output=True, text=True, timeout=60).stdout
        last = report.splitlines()[-1] if report else ""
        if not last.startswith("verdict: rank 2 (pid ") or VERDICT[mode] not in last or "that ranks 0,1 wait in" not in last:
            faults.append(f"coll-info: {report}")
        open(stop, "w").close()
        try:
            status = launcher.wait(60)
        except subprocess.TimeoutExpired:
            launcher.kill()
            status = "none"
        text = open(out).read()
        if status != 0 or text.count("done ") != RANKS:
            faults.append(f"status {status}: {text}")
    return faults


failed = 0
for mode in sys.argv[2:]:
    faults = stall(mode)
    failed += bool(faults)
    print("ok  " if not faults else "FAIL", mode, *faults, sep="\n     " if faults else " ")
print(f"{len(sys.argv) - 2 - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
