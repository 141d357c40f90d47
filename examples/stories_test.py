#!/usr/bin/env python3
"""The demo's text, and the count of words that judges its sample. usage: stories_test.py STORIES.PY WORDS.PY"""
import hashlib
import os
import re
import subprocess
import sys
import tempfile

STORIES, WORDS = sys.argv[1:]
SHA256 = "71565fe46ab00df76134f526e3caa59a0442dfef0641916bf037911c2f33ce01"  # of seed 1: the same on every machine and in every version of Python
failed = 0


def check(what, good):
    global failed
    failed += not good
    print(("ok    " if good else "FAIL  ") + what)


def told(seed, size):
    return subprocess.run([sys.executable, STORIES, str(seed), str(size)], capture_output=True, check=True).stdout


def judged(text, sample):
    return subprocess.run([sys.executable, WORDS, text], input=sample, capture_output=True, text=True, check=False)


one = told(1, 200000)
text = one.decode("ascii")
check(f"the same bytes everywhere: {hashlib.sha256(one).hexdigest()}", hashlib.sha256(one).hexdigest() == SHA256)
check("as much as is wanted, and a prefix of more", 200000 <= len(one) < 201000 and told(1, 300000).startswith(one))
check("another seed, other stories", told(2, 200000) != one)
check("no symbol is left, and no article is wrong", not re.search(r"[<>]|\ba [aeiou]", text))
check("sentences begin with a capital and end", all(re.match(r'["A-Z].*[.!?"]$', line) for line in text.split("\n") if line))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "text")
    with open(path, "wb") as f:
        f.write(one)
    check("its own words count, and nothing else",
          judged(path, "---- sample: 400 bytes ----\n" + text[:2000]).stdout.endswith("words of the text\n"))
    wrong = text[:2000].replace(" the ", " teh ")
    said = judged(path, wrong)
    check("words that it has not are named and end in status 1", said.returncode == 1 and "not in the text: teh" in said.stdout)
    check("a sample without words is no good one", judged(path, "12 34").returncode == 1)
print(f"{8 - failed} passed, {failed} failed, 0 skipped")
sys.exit(1 if failed else 0)
