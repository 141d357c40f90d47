#!/usr/bin/env python3
"""Numbers of the tree that may only fall: the largest circle of files that call each other in each folder, the folders
of transports/ in one circle, the sizes of the large structs, long functions and files, lines of code. The limits are in
ratchets.txt beside this file.

usage: ratchets.py SOURCE-ROOT BUILD-ROOT SIZES-PROGRAM [--write]   compare; --write lowers the limits that have fallen
       ratchets.py SOURCE-ROOT --lines [REVISION]                   print the lines of code, of a revision of git if one is given"""
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layers  # noqa: E402

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ratchets.txt")
LIBRARY = ("src/", "transports/", "topology/")
TESTS = ("tests/", "python/tests/")
FUNCTION_MAX, FILE_LONG, FILE_MAX = 60, 500, 650


# ---- Circles ----

def circles(arrows):
    """Strongly connected components of {node: {node}} (Tarjan), by recursion: the graphs are small."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            found.append(part)

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def room(path):
    """The folder that a file counts for; each folder of src/ and of transports/ is one."""
    return os.path.dirname(path)


def largest_circles(objects):
    """{"circle FOLDER": files}, and {"circle of folders in transports": folders}."""
    owner, calls, folders = layers.owners(objects), {}, {}
    for source, (_, used) in objects.items():
        for name in used:
            target = owner.get(name)
            if not target or target == source:
                continue
            if room(target) == room(source):
                calls.setdefault(room(source), {}).setdefault(source, set()).add(target)
            elif source.startswith("transports/") and target.startswith("transports/"):
                folders.setdefault(room(source), set()).add(room(target))
    found = {f"circle {where}": max(map(len, circles(arrows))) for where, arrows in calls.items()}
    found["circle of folders in transports"] = max(map(len, circles(folders)), default=1)
    return {name: size for name, size in found.items() if size > 1}


# ---- Lines ----

def is_unit_test(path):
    return re.search(r"_test\.[ch]$|_test\.py$", path) is not None


def code_lines(root, paths):
    """Lines of code: C as the preprocessor leaves it without comments, other files without blank lines and comment lines."""
    c = [p for p in paths if p.endswith((".c", ".h", ".cu", ".cc"))]
    text = b"".join(open(os.path.join(root, p), "rb").read() for p in c)
    done = subprocess.run(["gcc", "-fpreprocessed", "-dD", "-E", "-P", "-x", "c", "-"], input=text, capture_output=True)
    lines = done.stdout.count(b"\n")
    for path in paths:
        if path.endswith((".py", ".sh")):
            with open(os.path.join(root, path), encoding="utf-8") as f:
                lines += sum(1 for line in f if line.strip() and not line.lstrip().startswith("#"))
    return lines


def lines_of(root):
    """Of a source tree; --lines prints them, so that two revisions can be compared by the same count."""
    paths = [os.path.relpath(os.path.join(base, name), root)
             for top in ("src", "transports", "topology", "tools", "tests", "bench", "python", "ddp", "gpt", "sim", "examples")
             for base, _, names in os.walk(os.path.join(root, top)) for name in sorted(names)]
    tests = [p for p in paths if p.startswith(TESTS) or is_unit_test(p)]
    rest = sorted(set(paths) - set(tests))
    library = [p for p in rest if p.startswith(LIBRARY) and p.endswith((".c", ".h", ".cu"))]
    tools = [p for p in rest if p.startswith("tools/") and p.endswith((".c", ".h"))]
    return {
        "lines of library": code_lines(root, library),
        "lines of library and tools": code_lines(root, library + tools),
        "lines of tests": code_lines(root, sorted(tests)),
        "lines of bench": code_lines(root, [p for p in rest if p.startswith("bench/") and p.endswith((".c", ".h", ".cc", ".py"))]),
    }


def function_lengths(text):
    """(name, lines) of each function: from the first line of its head to the brace that closes it in the first column."""
    lines, found, head = text.split("\n"), [], None
    for at, line in enumerate(lines):
        if line == "{":
            first = at
            while first > 0 and lines[first - 1] and lines[first - 1][0] not in "#}/ *" and not lines[first - 1].endswith(";"):
                first -= 1
            while first < at and lines[first].startswith(("\t", " ")):
                first += 1
            head = first
        elif line == "}" and head is not None:
            name = re.search(r"(\w+)\(", " ".join(lines[head:at]))
            found.append((name.group(1) if name else "?", at - head + 1))
            head = None
    return found


def long_ones(files):
    """Counts of long functions and files; files: {path: text} of the library."""
    over = {"functions over %d lines" % FUNCTION_MAX: 0, "files over %d lines" % FILE_LONG: 0, "files over %d lines" % FILE_MAX: 0}
    told = []
    for path, text in sorted(files.items()):
        count = text.count("\n")
        over["files over %d lines" % FILE_LONG] += count > FILE_LONG
        over["files over %d lines" % FILE_MAX] += count > FILE_MAX
        if count > FILE_LONG:
            told.append(f"{path}: {count} lines")
        for name, length in function_lengths(text):
            if length > FUNCTION_MAX:
                over["functions over %d lines" % FUNCTION_MAX] += 1
                told.append(f"{path}: {name} has {length} lines")
    return over, told


# ---- The table ----

def read_table():
    limits = {}
    with open(TABLE) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, number = line.rsplit(None, 1)
                limits[name.strip()] = int(number)
    return limits


def above(limits, measured):
    """What is larger than it may be; a circle or struct without a row is new."""
    return [f"{name}: {number}, at most {limits.get(name, 'nothing: it has no row')}" for name, number in sorted(measured.items())
            if number > limits.get(name, 0)]


def write_table(limits, measured):
    with open(TABLE) as f:
        lines = f.read().split("\n")
    for at, line in enumerate(lines):
        if not line.strip() or line.startswith("#"):
            continue
        name = line.rsplit(None, 1)[0].strip()
        if name in measured and measured[name] < limits[name]:
            lines[at] = f"{name:<44}{measured[name]:>6}"
    with open(TABLE, "w") as f:
        f.write("\n".join(lines))


def self_test(limits, measured, objects):
    """Each kind of number must be found too large on a planted case; returns those that are not."""
    missed = []
    for name in measured:
        if not above({**limits, name: measured[name] - 1}, measured):
            missed.append(f"{name}: one more than its limit was not found")
    planted = dict(objects)
    ring = [f"src/base/planted_{i}.c" for i in range(9)]
    for i, path in enumerate(ring):
        planted[path] = ({f"coll_planted_{i}"}, {f"coll_planted_{(i + 1) % len(ring)}"})
    if largest_circles(planted).get("circle src/base") != 9 or not above(limits, largest_circles(planted)):
        missed.append("a planted circle of nine files was not found")
    planted["transports/common/planted.c"] = ({"coll_planted_common"}, {"coll_planted_tcp"})
    planted["transports/tcp/planted.c"] = ({"coll_planted_tcp"}, {"coll_planted_common"})
    if largest_circles(planted).get("circle of folders in transports", 1) < 2:
        missed.append("a planted circle of folders in transports/ was not found")
    body = "static int planted(int a)\n{\n" + "\ta++;\n" * FUNCTION_MAX + "}\n"
    if long_ones({"src/base/planted.c": body})[0]["functions over %d lines" % FUNCTION_MAX] != 1:
        missed.append("a planted long function was not found")
    if long_ones({"src/base/planted.c": "\n" * (FILE_MAX + 1)})[0]["files over %d lines" % FILE_MAX] != 1:
        missed.append("a planted long file was not found")
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "src/base"))
        with open(os.path.join(root, "src/base/planted.c"), "w") as f:
            f.write("/* a comment */\n\n" + "int planted;\n" * 3)
        if lines_of(root)["lines of library"] != 3:
            missed.append("lines of code are not counted as they should")
    return missed


def lines_at(root, revision):
    archive = subprocess.run(["git", "-C", root, "archive", revision], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as copy:
        tarfile.open(fileobj=io.BytesIO(archive)).extractall(copy)
        return lines_of(copy)


def main(argv):
    root = os.path.abspath(argv[0])
    if argv[1] == "--lines":
        for name, number in (lines_at(root, argv[2]) if len(argv) > 2 else lines_of(root)).items():
            print(f"{name:<44}{number:>6}")
        return 0
    build, sizes = argv[1:3]
    with open(os.path.join(build, "compile_commands.json")) as f:
        objects = layers.symbols(build, json.load(f), root)
    files = {}
    for top in LIBRARY:
        for base, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                path = os.path.relpath(os.path.join(base, name), root)
                if name.endswith((".c", ".h")) and not is_unit_test(path):
                    with open(os.path.join(root, path), encoding="utf-8") as f:
                        files[path] = f.read()
    over, told = long_ones(files)
    measured = {**largest_circles(objects), **over, **lines_of(root)}
    for line in subprocess.run([sizes], capture_output=True, text=True, check=True).stdout.splitlines():
        name, number = line.rsplit(None, 1)
        measured[name] = int(number)
    limits = read_table()
    if "--write" in argv:
        write_table(limits, measured)
        limits = read_table()
    bad = above(limits, measured) + self_test(limits, measured, objects)
    if bad:
        print("\n".join(told))
    print("\n".join(bad))
    for name, number in sorted(measured.items()):
        print(f"{name:<44}{number:>6}{'' if number >= limits.get(name, number) else '  (limit %d may be lowered)' % limits[name]}")
    print(f"{max(len(measured) - len(bad), 0)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or len(measured) < 12 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
