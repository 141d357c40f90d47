"""Run a test program or an example under collrun. usage: drive.py BUILD-DIRECTORY PYTHON RANKS PROGRAM [MODULE...]

Ends with 77 (skipped) if Python has not all the modules.
"""

import os
import subprocess
import sys

build, python, ranks, program, *modules = sys.argv[1:]
env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_") or k == "COLL_TRANSPORTS"}
env["PYTHONPATH"] = os.pathsep.join([os.path.join(os.path.abspath(build), "python"), os.path.dirname(os.path.abspath(program))])
env["PATH"] = os.path.join(os.path.abspath(build), "tools") + os.pathsep + env["PATH"]
env["OMP_NUM_THREADS"] = "1"
for module in modules:
    if subprocess.run([python, "-c", "import " + module], capture_output=True, env=env).returncode != 0:
        print(f"skipped: {python} has no module {module}")
        sys.exit(77)
sys.exit(subprocess.run([os.path.join(build, "tools", "collrun"), "--no-prefix", "-n", ranks, python, program], env=env,
                        timeout=280).returncode)
