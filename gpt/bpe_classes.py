#!/usr/bin/env python3
"""Classes of code points for the pieces of byte-level BPE, as bpe_classes.h: python3 bpe_classes.py > bpe_classes.h

Two bits each: 0 other, 1 letter, 2 number, 3 space. Blocks of 256 that are equal are kept once. Unicode 16, as the
library tokenizers 0.23 has it; without Python 3.14 from the package unicodedata2.
"""
import unicodedata

WANTED = "16.0.0"
if unicodedata.unidata_version != WANTED:
    import unicodedata2 as unicodedata

    if unicodedata.unidata_version != WANTED:
        raise SystemExit("Unicode %s is needed, not %s" % (WANTED, unicodedata.unidata_version))

SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def class_of(c):
    return 3 if c in SPACES else {"L": 1, "N": 2}.get(unicodedata.category(chr(c))[0], 0)


def print_table(kind, name, values):
    print("static const %s %s = {" % (kind, name))
    for i in range(0, len(values), 32):
        print("".join("%d," % v for v in values[i:i + 32]))
    print("};")


blocks, index = [], []
for b in range(0x1100):
    block = tuple(sum(class_of(256 * b + 4 * i + k) << 2 * k for k in range(4)) for i in range(64))
    if block not in blocks:
        blocks.append(block)
    index.append(blocks.index(block))
print("/* Made by bpe_classes.py from Unicode %s: do not edit. */\n#include <stdint.h>\n\n/* clang-format off */" % WANTED)
print_table("uint8_t", "block_of[0x1100]", index)
print_table("uint8_t", "classes[%d]" % (64 * len(blocks)), [v for block in blocks for v in block])
print("/* clang-format on */")
