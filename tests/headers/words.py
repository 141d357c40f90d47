#!/usr/bin/env python3
"""Retired names stay retired: no text file uses a name of tests/headers/words.txt.

The list has identifiers, files and folders, one per line; # begins a comment, and a name that ends in * stands for all
names that begin so. Exempt is what maps old names to new ones or reports the past: see EXEMPT. The paths that
CONTRIBUTING.md names in "Where to change what" must exist. Each finding is printed as file:line.
usage: words.py SOURCE-ROOT [FILE...]"""
import glob
import os
import re
import subprocess
import sys

LIST = "tests/headers/words.txt"
EXEMPT = ("docs/guide/glossary.md", "CHANGELOG.md", "docs/results/", LIST,
          # The table of renamed settings, its test, and the check of settings.
          "src/base/config.c", "src/base/config_test.c", "tests/headers/settings.sh",
          # Its self-test names some.
          "tests/headers/words.py")
PAGE, SECTION = "CONTRIBUTING.md", "## Where to change what"
# Named there, and being written.


def read(path):
    """The text of a file; None: it is not text."""
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except (UnicodeDecodeError, IsADirectoryError, FileNotFoundError):
        return None
    return None if "\0" in text else text


def retired(text):
    return [w for w in (line.split("#")[0].strip() for line in text.split("\n")) if w]


def pattern(word):
    """A name is neither the end nor the beginning of a longer one, but a folder may stand before it."""
    stem = word.rstrip("*")
    return re.compile(r"(?<![\w-])" + re.escape(stem) + ("" if word.endswith("*") else r"(?!\w)"))


def uses(text, words):
    """(line number, word) of every use."""
    return [(text.count("\n", 0, m.start()) + 1, w) for w in words if w.rstrip("*") in text
            for m in pattern(w).finditer(text)]


def tracked(root):
    git = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if git.returncode == 0 and git.stdout:
        return sorted(p for p in git.stdout.split("\0") if p)
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [d for d in folders if not d.startswith(".") and d != "build"]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(found)


def named_paths(text):
    """(line number, path) in the section on where to change what: inline code with a slash or an extension."""
    found, inside = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            inside = line == SECTION
        for code in re.findall(r"`([^`]+)`", line) if inside else []:
            if re.fullmatch(r"[\w.{},-]+(/[\w.{},-]*)+|[\w-]+\.(h|c|md|py|sh|build|map)", code):
                found.append((number, code))
    return found


def spread(path):
    """a/{b,c}.h: a/b.h, a/c.h. NAME stands for any name."""
    m = re.search(r"\{([^{}]*)\}", path)
    return [path.replace("NAME", "*")] if not m else [p for part in m[1].split(",") for p in spread(path[:m.start()] + part + path[m.end():])]


def missing(root, text):
    return [(number, p) for number, path in named_paths(text) for p in spread(path)
            if not glob.glob(os.path.join(root, p))]


def self_test(root):
    """The check must be able to fail, and to pass."""
    words = retired("# a comment\nold_name\nhub.c # was central\nold/folder\nold_more_*\n")
    cases = [
        ("new\nold_name(1);\n", [(2, "old_name")]), ("older_name, old_names, my_old_name, old_name2", []),
        ("src/comm/hub.c", [(1, "hub.c")]), ("github.com, loop_hub.c, hub.cc", []), ("x\nold/folder/a.c", [(2, "old/folder")]),
        ("old_more_words", [(1, "old_more_*")]), ("an old name", []),
    ]
    wrong = [f"self-test: {uses(text, words)} in {text!r}, not {want}" for text, want in cases if uses(text, words) != want]
    page = f"# A\n`no/such/file.c`\n{SECTION}\n`tests/headers/words.{{py,txt}}`, `a b`, `KIND`, `no/such/{{x,y}}.c`\n## Next\n`no/such`\n"
    if missing(root, page) != [(4, "no/such/x.c"), (4, "no/such/y.c")]:
        wrong.append(f"self-test: missing {missing(root, page)}")
    return wrong


def main():
    root = sys.argv[1]
    words = retired(read(os.path.join(root, LIST)))
    faults, checked = self_test(root), 0
    for path in sys.argv[2:] or tracked(root):
        text = None if path.startswith(EXEMPT) else read(os.path.join(root, path))
        if text is None:
            continue
        checked += 1
        faults += [f"{path}:{line}: {word} is retired; docs/guide/glossary.md has its name of today"
                   for line, word in uses(text, words)]
    page = read(os.path.join(root, PAGE))
    if not named_paths(page):
        faults.append(f"{PAGE}: no path in '{SECTION[3:]}'")
    faults += [f"{PAGE}:{line}: {path} does not exist" for line, path in missing(root, page)]
    print("\n".join(faults) or f"{len(words)} retired names, {checked} files without them")
    return 1 if faults or len(words) < 50 or checked < 1 else 0


sys.exit(main())
