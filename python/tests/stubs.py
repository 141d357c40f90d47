"""mypy --strict on the package and the examples. usage: stubs.py BUILD-DIRECTORY PYTHON SOURCE-ROOT"""

import glob
import os
import subprocess
import sys
import tempfile

build, python, root = sys.argv[1:]
if subprocess.run([python, "-c", "import mypy, numpy"], capture_output=True).returncode != 0:
    print(f"skipped: {python} has no mypy, or no numpy")
    sys.exit(77)
failed = []
with tempfile.TemporaryDirectory() as cache:
    # What is said of torch is not checked: reading it takes minutes, and it need not be there.
    config = os.path.join(cache, "mypy.ini")
    with open(config, "w") as f:
        f.write("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\nfollow_imports_for_stubs = True\nignore_missing_imports = True\n")
    # jax need not be there; its example is checked for what it says of coll.
    for what in [["-p", "coll"], *[[e] for e in sorted(glob.glob(f"{root}/python/examples/*.py"))]]:
        done = subprocess.run([python, "-m", "mypy", "--strict", "--config-file", config, "--cache-dir", cache, "--python-executable", python,
                               *(["--ignore-missing-imports", "--allow-untyped-decorators"] if "jax" in what[0] else []), *what],
                              capture_output=True, text=True, env={**os.environ, "MYPYPATH": os.path.join(build, "python")})
        if done.returncode:
            failed.append(done.stdout + done.stderr)
    # The check must be able to fail.
    wrong = os.path.join(cache, "wrong.py")
    with open(wrong, "w") as f:
        f.write("import coll\nwork: coll.Work = coll.init().all_reduce([1], 'sum', stream='3')\n")
    if subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir", cache, wrong], capture_output=True,
                      env={**os.environ, "MYPYPATH": os.path.join(build, "python")}).returncode == 0:
        failed.append("a wrong program passes")
print("\n".join(failed))
print(f"{0 if failed else 1} passed, {len(failed)} failed, 0 skipped")
sys.exit(bool(failed))
