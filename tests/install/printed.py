#!/usr/bin/env python3
"""What a page prints is compiled and run, and prints what the page says.

Of each page, from top to bottom: a block of C or Python that the line before it names (`first.c`) is that file. A line of a block
of sh that begins with cc, collrun, coll-, example_ or ./ is run as printed, in a folder of its own, with the programs, the library
and the Python package of a build. A block of text behind such a block is what its lines print: all of them, in any order
(ranks are not ordered), where ... stands for anything, and a last line of ... alone for any more lines. The [rank] of collrun is left out. Blocks that need
what this interpreter lacks (torch, numpy) are counted as skipped. Lines with $HOME belong to an installation, which is tested elsewhere.
A block of C that names a file of the tree (`examples/hello.c`) has to be that file, and --write SOURCE-ROOT PAGE... makes it so.
usage: printed.py SOURCE-ROOT BUILD PAGE..."""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

STARTS = ("cc ", "collrun ", "coll-", "./", "COLL_", "example_")


def blocks(text):
    """(kind, body, name, line number) of each fenced block; the name is that in the paragraph before it."""
    for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        before = text[:m.start()].rstrip().split("\n\n")[-1]
        after = text[m.end():].lstrip("\n").split("\n", 1)[0]
        names = re.findall(r"`([\w./-]+\.(?:c|py))`", before) or re.findall(r"^Save it as `([\w-]+\.(?:c|py))`", after)
        yield m[1], m[2], names[-1] if names else None, text.count("\n", 0, m.start()) + 1


def fits(pattern, line):
    return re.fullmatch(".*".join(re.escape(p) for p in pattern.split("...")), line) is not None


def compare(expected, output):
    """None, or what is wrong. Each expected line takes one line of the output, the most special first."""
    lines = [re.sub(r"^\[\d+\] ", "", x) for x in output.split("\n") if x.strip()]
    wanted = [x for x in expected.split("\n") if x.strip()]
    more = bool(wanted) and wanted[-1].strip() == "..."
    for want in sorted(wanted[:-1] if more else wanted, key=lambda x: x.count("...")):
        at = next((i for i, line in enumerate(lines) if fits(want, line)), None)
        if at is None:
            return f"nothing prints '{want}'"
        del lines[at]
    return None if more or not lines else f"'{lines[0]}' is printed, too"


def write(root, pages):
    """Put the files of the tree into the blocks of C that name them."""
    for page in pages:
        path = os.path.join(root, page)
        with open(path, encoding="utf-8") as f:
            text = f.read()

        def filled(m):
            names = re.findall(r"`(examples/[\w./-]+\.c)`", text[:m.start()].rstrip().split("\n\n")[-1])
            if not names:
                return m[0]
            with open(os.path.join(root, names[-1]), encoding="utf-8") as f:
                return "```c\n" + f.read() + "```"
        text = re.sub(r"^```c\n.*?^```$", filled, text, flags=re.M | re.S)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


class Runner:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.passed = self.failed = self.skipped = 0

    def environment(self, folder):
        programs = os.path.join(folder, ".bin")
        os.mkdir(programs)
        for place in ("tools", "bench", "examples"):
            for name in os.listdir(f"{self.build}/{place}"):
                path = f"{self.build}/{place}/{name}"
                if os.path.isfile(path) and os.access(path, os.X_OK) and "." not in name:
                    os.symlink(path, f"{programs}/{name}")
        os.symlink(sys.executable, f"{programs}/python3")
        with open(f"{programs}/libcoll.pc", "w", encoding="utf-8") as f: # as an installation has it, with the folders of the build
            f.write(f"Name: libcoll\nDescription: -\nVersion: 0\nCflags: -I{self.root}/include\nLibs: -L{self.build}/src -lcoll\n")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COLL", "LD_", "PYTHON"))}
        env.update(PATH=f"{programs}:{env['PATH']}", LD_LIBRARY_PATH=f"{self.build}/src", PKG_CONFIG_PATH=programs,
                   PYTHONPATH=f"{self.build}/python")
        return env

    def page(self, page):
        with open(os.path.join(self.root, page), encoding="utf-8") as f:
            text = f.read()
        with tempfile.TemporaryDirectory(prefix="printed-") as folder:
            env, last, lacks = self.environment(folder), None, set()
            for kind, body, name, number in blocks(text):
                if name and name.startswith("examples/"):
                    with open(os.path.join(self.root, name), encoding="utf-8") as f:
                        self.count(f.read() == body, f"{page}:{number}: not {name}: tests/install/printed.py --write . {page}")
                if kind in ("c", "python") and name:
                    with open(os.path.join(folder, os.path.basename(name)), "w", encoding="utf-8") as f:
                        f.write(body)
                    if kind == "python" and [m for m in ("torch", "numpy") if re.search(rf"^import.*\b{m}\b", body, re.M) and not importlib.util.find_spec(m)]:
                        lacks.add(os.path.basename(name))
                elif kind == "sh":
                    last = None
                    for line in body.split("\n"):
                        line = re.sub(r"\s+#.*", "", line).rstrip()
                        if not line.startswith(STARTS) or "$HOME" in line or line.startswith("./run "):
                            continue
                        if lacks & set(line.split()):
                            self.skipped, last = self.skipped + 1, None
                            break
                        last = (last or "") + self.line(page, number, line, folder, env)
                elif kind == "text" and last is not None:
                    wrong = compare(body, last)
                    self.count(not wrong, f"{page}:{number}: {wrong}; printed was:\n{last}")
                    last = None

    def line(self, page, number, line, folder, env):
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        output = done.stdout + done.stderr
        warned = line.startswith("cc ") and "warning:" in output
        self.count(done.returncode == 0 and not warned, f"{page}:{number}: status {done.returncode} of: {line}\n{output}")
        return output

    def count(self, right, text):
        self.passed += bool(right)
        self.failed += not right
        if not right:
            print(f"FAILED: {text}", flush=True)


def self_test():
    cases = [("a\nb\n", "b\na\n", True), ("a\n", "a\nb\n", False), ("a\n...\n", "a\nb\n", True), ("a ... c\n", "a b c\n", True), ("a\n", "b\n", False),
             ("x ...\nx 1\n", "x 1\nx 2\n", True)]
    return [f"self-test: {case}" for case in cases if (compare(case[0], case[1]) is None) != case[2]]


def main():
    if sys.argv[1] == "--write":
        write(os.path.abspath(sys.argv[2]), sys.argv[3:])
        return 0
    root, build = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if not shutil.which("cc") or not shutil.which("pkg-config"):
        print("SKIPPED: needs cc and pkg-config")
        return 77
    runner = Runner(root, build)
    for text in self_test():
        runner.count(False, text)
    for page in sys.argv[3:]:
        before = runner.passed + runner.failed + runner.skipped
        runner.page(page)
        runner.count(runner.passed + runner.failed + runner.skipped > before, f"{page}: nothing to run")
    print(f"{runner.passed} passed, {runner.failed} failed, {runner.skipped} skipped")
    return 1 if runner.failed else 0


sys.exit(main())
