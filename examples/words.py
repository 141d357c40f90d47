#!/usr/bin/env python3
"""How many words of a sample are words of the text that a model learned. A word has three letters or more; the last one of a
sample, which ends anywhere, does not count, nor does ddp_gpt's line above it. Status 1 when fewer than 95 % are.

usage: words.py TEXT <SAMPLE"""
import re
import sys

LEAST = 0.95


def words(text):
    return re.findall(r"[^\W\d_]{3,}", text)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        known = set(words(f.read()))
    said = words(re.sub(r"^----.*\n", "", sys.stdin.read()))[:-1]
    right = [w for w in said if w in known]
    print(f"{len(right)} of {len(said)} words of the sample are words of the text")
    for word in sorted(set(said) - known):
        print(f"not in the text: {word}")
    return 0 if said and len(right) >= LEAST * len(said) else 1


sys.exit(main())
