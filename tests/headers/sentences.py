#!/usr/bin/env python3
"""No sentence of the documentation has more than 40 words: README, CHANGELOG, CONTRIBUTING, SECURITY, docs/guide, docs/design.

Not counted: code blocks, tables, headings, and the pages that are generated. An item of a list is a paragraph.
Inline code is one word, and so is the address of a link. Each finding is printed as file:line.
usage: sentences.py SOURCE-ROOT [FILE...]"""
import glob
import os
import re
import sys

MOST = 40
GENERATED = {"docs/guide/messages.md", "docs/guide/python-reference.md"}
# A full stop behind these ends no sentence.
SHORT = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|No|Fig|sect|approx)\.$")
END = re.compile(r"[.!?][\"')*_\]]*(?=\s)")


def paragraphs(text):
    """Lists of (line number, line), without what is not prose."""
    part, fenced, indented = [], False, False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
            bare = ""
        elif fenced:
            continue
        # An indented block behind an empty line is code; behind a line of an item it goes on with the item.
        elif re.match(r"(?: {4}|\t)", line) and bare and (indented or not part):
            indented = True
            continue
        indented = indented and not bare
        skip = not bare or bare.startswith(("|", "#", "<!--", "![")) or re.match(r"^[-=*]{3,}$", bare)
        if part and (skip or re.match(r"(?:[-*+]|\d+\.)\s", bare)):
            yield part
            part = []
        if not skip:
            part.append((number, re.sub(r"^(?:[-*+]|\d+\.|>)\s+", "", bare)))
    if part:
        yield part


def words_of(sentence):
    return len([w for w in sentence.split() if re.search(r"\w|\x00", w)])


def sentences(part):
    """(line number, words) of each sentence of a paragraph."""
    text, starts = "", []
    for number, line in part:
        starts.append((len(text), number))
        text += line + "\n"
    # The same length, so that offsets go on to say which line it is.
    text = re.sub(r"`[^`]*`", lambda m: "\x00" + "x" * (len(m[0]) - 1), text)
    text = re.sub(r"\]\([^)]*\)", lambda m: "]" + "_" * (len(m[0]) - 1), text)
    at = 0
    for end in [m.end() for m in END.finditer(text)] + [len(text)]:
        if SHORT.search(text[at:end]):
            continue
        lead = len(text[at:end]) - len(text[at:end].lstrip())
        line = [n for offset, n in starts if offset <= at + lead][-1]
        yield line, words_of(text[at:end])
        at = end


def long_ones(text):
    return [(line, n) for part in paragraphs(text) for line, n in sentences(part) if n > MOST]


def self_test():
    """The check must be able to fail, and to pass."""
    forty = " ".join(["word"] * 40)
    cases = [
        (forty + ".\n", []),
        ("A line.\n\n" + forty + " more.\n", [3]),
        ("First.\n" + forty.replace(" ", "\n") + " more. Next.\n", [2]),
        ("- " + forty + "\n- " + forty + "\n", []),
        ("- " + forty + "\n  and more\n", [1]),
        ("| " + forty + " | more |\n", []),
        ("```\n" + forty + " more\n```\n", []),
        ("Text:\n\n    " + forty + " more\n\nText.\n", []),
        (" ".join(["word"] * 39) + " `some code of several words`.\n", []),
        (forty + " [a link](page.md).\n", [1]),
        (" ".join(["word"] * 20) + ", e.g. " + " ".join(["word"] * 20) + ".\n", [1]),
    ]
    return [f"self-test {i}: {long_ones(text)}, not lines {lines}"
            for i, (text, lines) in enumerate(cases) if [line for line, _ in long_ones(text)] != lines]


def pages(root):
    found = [os.path.join(root, p) for p in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder in ("guide", "design"):
        found += sorted(glob.glob(f"{root}/docs/{folder}/*.md"))
    return [p for p in found if os.path.relpath(p, root) not in GENERATED]


def main():
    root = sys.argv[1]
    wrong = self_test()
    for line in wrong:
        print(line)
    checked, failed = 1, int(bool(wrong))
    for page in sys.argv[2:] or pages(root):
        with open(page, encoding="utf-8") as f:
            found = long_ones(f.read())
        for line, n in found:
            print(f"{os.path.relpath(page, root)}:{line}: a sentence of {n} words, {MOST} at most")
        checked += 1
        failed += bool(found)
    print(f"{checked - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())
