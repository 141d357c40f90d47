#!/usr/bin/env python3
"""Byte-level BPE beside the library tokenizers: python3 bpe_test.py DDP_GPT [MEGABYTES]

Ids equal on mixed text of every kind, for vocabularies that either side trained; text comes back. Without tokenizers and numpy it
ends with 77.
"""
import os
import random
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as why:
    print("skipped: %s" % why)
    sys.exit(77)

PROGRAM = sys.argv[1]
SIZE = int(1e6 * float(sys.argv[2] if len(sys.argv) > 2 else 1))
passed = failed = 0


def check(what, good, detail=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok    " if good else "FAIL  ") + what + ("" if good else "\n" + detail), flush=True)


def mixed(size, seed):
    """Words, code, contractions, numbers, odd spaces, and characters of every plane."""
    r = random.Random(seed)
    words = ["the", "ring", "don't", "we'll", "I've", "they're", "grün", "straße", "война", "漢字", "かな", "العربية", "हिन्दी", "한국어", "🙂", "👩‍🔬", "x86_64", "0x1f", "3.14159",
             "for (int i = 0; i < n; i++) {", "'S", "''d", "\u00a0", "\u2003", "\t", "\n\n", "\r\n", "   ", "½", "Ⅷ", "١٢٣", "\u3000", "_", "...", "e\u0301"]
    out, n = [], 0
    while n < size:
        x = r.random()
        if x < 0.8:
            piece = r.choice(words) + r.choice([" ", " ", " ", "", "  ", "\n", "\n  "])
        elif x < 0.95:
            piece = "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randrange(1, 12))) + " "
        else:
            piece = "".join(chr(c) for c in (r.randrange(0x110000) for _ in range(3)) if not 0xD800 <= c < 0xE000 and assigned(c))
        out.append(piece)
        n += len(piece.encode())
    return "".join(out)


def assigned(c):
    """Assigned in the version of Unicode that both sides have."""
    import unicodedata
    return unicodedata.category(chr(c)) not in ("Cn", "Co")


def ids_of(folder, tokenizer, path):
    to = os.path.join(folder, "ids.bin")
    begun = time.monotonic()
    p = subprocess.run([PROGRAM, "tokenize", "--tokenizer", tokenizer, "--to", to, path], capture_output=True, check=False)
    took = time.monotonic() - begun
    if p.returncode:
        check("tokenize", False, p.stderr.decode())
        return [], took
    head = numpy.fromfile(to, dtype=numpy.int32, count=256)
    wide = head[0] == 20240801
    ids = numpy.fromfile(to, dtype=numpy.uint32 if wide else numpy.uint16, offset=1024)
    assert head[0] in (20240520, 20240801) and head[1] == (7 if wide else 1) and head[2] == len(ids)
    return ids.astype(int).tolist(), took


def main():
    with tempfile.TemporaryDirectory() as folder:
        train, text, one = (os.path.join(folder, n) for n in ("train", "text", "one"))
        for path, what in ((train, mixed(SIZE, 1) + 2000 * (27 * "a" + " ")), (text, mixed(SIZE, 2)), (one, "a" * (min(2 * SIZE, 2000000) + 1))):
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(what)
        ours, theirs = os.path.join(folder, "ours.json"), os.path.join(folder, "theirs.json")
        p = subprocess.run([PROGRAM, "tokenizer", "train", "--size", "2000", "--to", ours, train], capture_output=True, check=False)
        check("train", p.returncode == 0 and b"2000 tokens" in p.stdout, str(p))
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.train([train], trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"],
                                             show_progress=False))
        t.save(theirs)
        t.model.save(folder)
        for name, path in (("of ours", ours), ("of theirs", theirs), ("of vocab.json and merges.txt", folder)):
            judge = Tokenizer.from_file(theirs if path == folder else path)
            end = judge.token_to_id("<|endoftext|>")
            for kind, file in (("mixed text", text), ("one letter", one)):
                with open(file, encoding="utf-8", newline="") as f:
                    what = f.read()
                got, took = ids_of(folder, path, file)
                begun = time.monotonic()
                want = judge.encode(what).ids
                theirs_took = time.monotonic() - begun
                differ = [i for i, (a, b) in enumerate(zip(got, want)) if a != b][:1]
                check("%s, the vocabulary %s: %d ids equal (%.2f s, theirs %.2f s)" % (kind, name, len(want), took, theirs_took),
                      got == want + [end], "%d ids, not %d; first at %s: %s" % (len(got), len(want) + 1, differ,
                                                                                 differ and (judge.decode(want[differ[0]:differ[0] + 4]), got[differ[0]:differ[0] + 4], want[differ[0]:differ[0] + 4])))
                check("%s, the vocabulary %s: comes back" % (kind, name), judge.decode(got[:-1]) == what or kind == "mixed text" and judge.decode(want) != what)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(failed != 0)


main()
