"""Whether a test program would notice a mistake: it is run over the package with one planted, and must fail.

Used by broken.py and torch_broken.py: `python FILE BUILD-DIRECTORY PYTHON [NAME...]`.
"""

import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# It must fail because a value is wrong, not because the mistake is no program.
FOUND = ("AssertionError", "MismatchError", "DistBackendError")
BROKEN = ("NameError", "SyntaxError", "AttributeError", "TypeError")


def outcome(build, python, mistake, program, only, ranks="3"):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    kept.update(PYTHONPATH=os.pathsep.join([os.path.join(build, "python"), HERE]), OMP_NUM_THREADS="1", COLL_TEST_ONLY=only,
                COLL_ARRIVAL_TIMEOUT_MS="20000")
    text = mistake + f"import runpy\nrunpy.run_path({os.path.join(HERE, program)!r}, run_name='__main__')\n"
    return subprocess.run([os.path.join(build, "tools", "collrun"), "-n", ranks, python, "-c", text], capture_output=True, text=True,
                          env=kept, timeout=200)


def main(modules, program, mistakes):
    """mistakes: name -> (tests that see it, or "" for all; Python that plants it; another program, if it is not `program`)."""
    build, python, names = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if subprocess.run([python, "-c", "import " + modules], capture_output=True).returncode != 0:
        print(f"skipped: {python} has not all of {modules}")
        return 77
    missed = 0
    chosen = {n: mistakes[n] for n in names or mistakes}
    for name, (tests, mistake, *other) in chosen.items():
        began = time.monotonic()
        done = outcome(build, python, mistake, (other or [program])[0], tests)
        found = done.returncode != 0 and any(f in done.stderr for f in FOUND) and not any(b in done.stderr for b in BROKEN)
        missed += not found
        print(f"{'found' if found else 'MISSED'}: {name} ({time.monotonic() - began:.1f} s)", flush=True)
        if not found:
            print(done.stdout[-2000:], done.stderr[-4000:])
    print(f"{len(chosen) - missed} passed, {missed} failed, 0 skipped")
    return 1 if missed else 0
