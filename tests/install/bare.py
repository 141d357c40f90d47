#!/usr/bin/env python3
"""README's lines on a bare system: a minbase root of this system's own release, made by debootstrap, in which the blocks of
README.md are run from top to bottom, each line as printed, by root in one shell; then those of docs/guide/install.md. A block
of C or Python is the file that the text around it names, or a fragment. What each line took is printed: seconds, and seconds of all processors.

The demo runs in a root of its own, because it installs packages that the other lines must name themselves.

Not run: ./run test, which is the suite. Needs root, debootstrap, and the package sources of this machine, which the roots use.
Ends with 77 and the reason where one is missing. usage: bare.py SOURCE [demo|lines]"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/release"))
import bare_root

WHAT = "README on a bare system"
PAGES = ("README.md", "docs/guide/install.md")
LEFT_OUT = {"./run test": "the suite itself"}
# What no line names is not there, and every installed program starts.
EXTRA = ["! dpkg-query -W libcriterion-dev", "for p in $HOME/libcoll/bin/* $HOME/libcoll/libexec/libcoll/*; do $p --help >/dev/null 2>&1 || [ $? != 127 ] || "
         "{ echo $p does not start; false; }; done"]
SHELL = r"""
TIMEFORMAT='== %R s, %U s + %S s of processors'
number=0
while IFS= read -r line <&3; do
	number=$((number + 1))
	echo "== step $number: $line"
	time eval "$line" </dev/null
	status=$?
	[ $status = 0 ] || { echo "== step $number failed with status $status: $line"; exit 1; }
done 3<"$1"
echo "== $number steps, all with status 0"
"""


def blocks(text):
    """(kind, lines, paragraphs around) of each fenced block."""
    for m in re.finditer(r"^```(\w+)\n(.*?)^```\n(?:\n([^\n]*))?", text, re.M | re.S):
        yield m[1], m[2], text[:m.start()].rstrip().split("\n")[-1] + " " + (m[3] or "")


def lines_of(page, root):
    """Shell lines of a page; its C programs are written below root."""
    with open(page, encoding="utf-8") as f:
        text = f.read()
    found = []
    for kind, body, around in blocks(text):
        if kind in ("c", "python"):
            name = re.search(r"`(\w+\.(?:c|py))`", around)
            if not name and "int main" in body:
                raise SystemExit(f"{page}: no name for the program:\n{body}")
            if not name:  # a fragment
                continue
            with open(os.path.join(root, name[1]), "w", encoding="utf-8") as f:
                f.write(body)
        elif kind == "sh":
            found += [line.split("  #")[0].rstrip() for line in body.split("\n") if line]
    return found


def copy_source(source, root):
    """What a clean clone has, and what is new in it."""
    told = subprocess.run(["git", "-C", source, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, text=True, check=True).stdout
    for name in filter(None, told.split("\0")):
        if os.path.exists(os.path.join(source, name)):
            os.makedirs(os.path.dirname(os.path.join(root, "libcoll", name)), exist_ok=True)
            shutil.copy2(os.path.join(source, name), os.path.join(root, "libcoll", name))


def run(root, lines):
    with open(f"{root}/lines", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(f"{root}/shell", "w", encoding="utf-8") as f:
        f.write(SHELL)
    return bare_root.inside(root, "cd /libcoll && exec bash /shell /lines").returncode


def main():
    source, parts = os.path.abspath(sys.argv[1]), sys.argv[2:] or ["demo", "lines"]
    bare_root.need(WHAT, "git")
    found = bare_root.mirror(WHAT)
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        bare = os.path.join(folder, "bare")
        bare_root.make(bare, *found)
        bare_root.let_apt_in(bare, *found)
        copy_source(source, bare)
        failed = 0
        for part in parts:
            root = os.path.join(folder, part)
            subprocess.run(["cp", "-a", bare, root], check=True)
            lines = [line for page in PAGES for line in lines_of(os.path.join(source, page), f"{root}/libcoll")]
            if part == "demo":
                lines = ["./run setup demo"] + [line for line in lines if line.startswith("./run demo")]
            else:
                for line in set(lines) & set(LEFT_OUT):
                    print(f"== left out: {line}: {LEFT_OUT[line]}")
                lines = [line for line in lines if line not in LEFT_OUT and not line.startswith("./run demo")] + EXTRA
            print(f"== {part}: {len(lines)} lines", flush=True)
            failed += run(root, lines) != 0
    print(f"{len(parts) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
