#!/usr/bin/env python3
"""ddp_gpt end to end: python3 ddp_gpt_test.py COLLRUN DDP_GPT [GROUP...]; GROUP: a function of this file

Small models, a fixed text, 1 to 4 ranks. Checks results, never times.
"""
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import threading

COLLRUN, PROGRAM = sys.argv[1:3]
SMALL = ["--layers", "2", "--width", "32", "--heads", "2", "--context", "16", "--batch", "12", "--steps", "12",
         "--warmup", "2", "--log-every", "1", "--val-every", "5", "--sample-len", "40"]
passed = failed = 0


def check(what, good, detail=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok    " if good else "FAIL  ") + what + ("" if good else "\n" + detail), flush=True)


def text_of(folder):
    """About 4000 bytes that a model can learn a little of, UTF-8 included."""
    path = os.path.join(folder, "text")
    words = ["ring", "tree", "rank", "grün", "sum", "send"]
    x, out = 1, []
    for _ in range(800):
        x = (x * 1103515245 + 12345) % 2**31
        out.append(words[(x >> 16) % len(words)])
    with open(path, "w", encoding="utf-8") as f:
        f.write(" ".join(out))
    return path


def run(ranks, *args):
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    command = [COLLRUN, "-n", str(ranks), "--no-prefix", PROGRAM, *args] if ranks else [PROGRAM, *args]
    p = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=120, check=False)
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


MODEL = "model/model.safetensors"


def train(folder, name, ranks, data, *args):
    """The metrics and the hash of the model of one run."""
    out = os.path.join(folder, name)
    code, stdout, stderr = run(ranks, *SMALL, "--data", data, "--out", out, "--overwrite", *args)
    if code != 0:
        check(name, False, stdout + stderr)
        return None
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        metrics = [json.loads(line) for line in f]
    return metrics, sha(os.path.join(out, MODEL)), stdout


def close(a, b):
    """Equal losses, validation and gradient norms at every step, but for rounding."""
    keys = ("loss", "val_loss", "grad_norm")
    return len(a) == len(b) and all(
        x["step"] == y["step"] and x.keys() == y.keys()
        and all(abs(x[k] - y[k]) <= 2e-4 * max(1, abs(y[k])) for k in keys if k in y) for x, y in zip(a, b))


def same_batch_for_any_number_of_ranks(folder, data):
    alone = train(folder, "alone", 0, data)
    if not alone:
        return
    metrics, digest, stdout = alone
    lines = stdout.splitlines()
    final = [i for i, line in enumerate(lines) if line.startswith("final val_loss=")]
    check("the loss falls", metrics[-1]["loss"] < 0.8 * metrics[0]["loss"], str(metrics))
    check("validation at steps 5, 10 and 12", [m["step"] for m in metrics if "val_loss" in m] == [5, 10, 12])
    check("one final line, then the sample", len(final) == 1 and lines[final[0] + 1].startswith("---- sample")
          and lines[final[0]] == "final val_loss=%.4f" % metrics[-1]["val_loss"], stdout)
    for ranks in (1, 2, 3, 4):
        got = train(folder, "ranks%d" % ranks, ranks, data)
        if not got:
            continue
        check("%d ranks learn what one does" % ranks, close(got[0], metrics), "%s\n%s" % (got[0], metrics))
        if ranks == 1:
            check("one rank under a launcher: the same bits", got[1] == digest)
        if ranks == 2:
            again = train(folder, "again", 2, data)
            check("a run repeats bit for bit", again and again[1] == got[1])
            check("and so does its sample", again and again[2].split("----")[-1] == got[2].split("----")[-1])
    other = train(folder, "seed", 1, data, "--seed", "2")
    check("another seed, another model", other and other[1] != digest)
    whole = train(folder, "byte", 2, data, "--vocab", "byte", "--no-sample")
    check("all bytes as vocabulary; no sample: the final line is the last",
          whole and "vocabulary 256" in whole[2] and whole[2].splitlines()[-1].startswith("final val_loss="))


def sha(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def ways_to_the_same_weights(folder, data):
    """Slices, buckets, micro-steps, threads and wires change how, not what."""
    want = train(folder, "plain", 2, data)
    if not want:
        return
    exact = [["--bucket-mb", "0.004"], ["--bucket-mb", "1000"], ["--zero", "1"], ["--zero", "2"], ["--zero", "1", "--bucket-mb", "0.01"],
             ["--trace", os.path.join(folder, "trace")]]
    for args in exact:
        got = train(folder, "exact", 2, data, *args)
        check("2 ranks %s: the same bits" % " ".join(args[:2]), got and got[1] == want[1])
    for rank in range(2):
        with open(os.path.join(folder, "trace.%d" % rank), encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        check("rank %d's trace: buckets end after they start" % rank,
              sum(e["ph"] == "X" for e in events) >= 12 and all(e.get("dur", 0) >= 0 for e in events))
    for ranks, args in [(2, ["--accumulate", "3"]), (2, ["--threads", "2"]), (2, ["--bucket-mb", "0"]), (1, ["--accumulate", "4"]),
                        (2, ["--zero", "2", "--accumulate", "2"]), (3, ["--zero", "1"]), (4, ["--bucket-mb", "0.02"]),
                        (2, ["--batch-tokens", "192"])]:
        got = train(folder, "near", ranks, data, *args)
        check("%d ranks %s: the same but for rounding" % (ranks, " ".join(args)), got and close(got[0], want[0]), str(got))
    for args, near in [(["--wire", "bf16"], 0.02), (["--wire", "int8"], 0.02), (["--wire", "powersgd", "--powersgd-rank", "4"], 0.3),
                       (["--local-steps", "3"], 0.3)]:
        got = train(folder, "lossy", 2, data, *args)
        check("2 ranks %s: learns too" % " ".join(args), got and abs(got[0][-1]["val_loss"] - want[0][-1]["val_loss"]) < near,
              str(got))
    got = train(folder, "smooth1", 1, data, "--label-smoothing", "0.2")
    other = train(folder, "smooth3", 3, data, "--label-smoothing", "0.2")
    check("--label-smoothing: the same on any number of ranks, and training is held back", got and other and close(got[0], other[0])
          and got[0][-1]["loss"] > want[0][-1]["loss"] + 0.02 and "val_loss" in got[0][-1], "%s\n%s" % (got, other))
    got = train(folder, "dropout1", 1, data, "--dropout", "0.2")
    other = train(folder, "dropout3", 3, data, "--dropout", "0.2")
    check("dropout: what is dropped does not depend on the ranks", got and other and close(got[0], other[0])
          and not close(got[0], want[0]), "%s\n%s" % (got, other))


def what_is_hidden_is_told(folder, data):
    """Every other step sends nothing, and the end says what that was good for."""
    for args in ([], ["--zero", "1"], ["--wire", "powersgd"]):
        got = train(folder, "overlap", 2, data, "--overlap", *args)
        name = "--overlap " + " ".join(args)
        check(name + ": every other step sends nothing", got and [m["stubbed"] for m in got[0]] == 6 * [0, 1]
              and all((m["sent_bytes"] > 0) == (m["stubbed"] == 0) and m["wire_s"] * m["stubbed"] == 0 <= m["wire_s"] for m in got[0]), str(got))
        check(name + ": told", got and "without communication" in got[2] and "(medians of 5)" in got[2], str(got))


def same_bits_on_any_number_of_ranks(folder, data):
    """One model, one validation loss and one norm for each pair of batch and leaves; more ranks than sequences or leaves, too."""
    for batch, leaves, jobs in ((24, 64, (1, 2, 3, 5, 8)), (10, 7, (1, 2, 8)), (24, 24, (1, 7))):
        seen = {}
        for ranks in jobs:
            for more in ([], ["--zero", "1", "--bucket-mb", "0.03"]) if ranks in (1, 3, 8) else ([],):
                got = train(folder, "world", ranks, data, "--deterministic=world", "--batch", str(batch), "--leaves", str(leaves), "--dropout", "0.1",
                            "--no-sample", *more)
                seen[ranks, len(more)] = got and (got[1], [(m["loss"], m.get("val_loss"), m["grad_norm"]) for m in got[0]])
        check("--deterministic=world: --batch %d, --leaves %d: %s ranks, slices or not, hold the same bits" % (batch, leaves, jobs),
              None not in seen.values() and all(x == seen[1, 0] for x in seen.values()), str(seen))
    plain = train(folder, "dealt", 2, data, "--batch", "24", "--dropout", "0.1")
    check("and learn what other runs do", plain and abs(seen[1, 0][1][-1][1] - plain[0][-1]["val_loss"]) < 2e-4, str(plain))
    other = train(folder, "leaves", 2, data, "--deterministic=world", "--leaves", "4", "--batch", "24", "--dropout", "0.1")
    check("other leaves, other bits", other and other[1] != seen[1, 0][0])


def byte_pairs(folder, data):
    """A vocabulary learned here, a model on it, and its directory read again."""
    path, ids = os.path.join(folder, "tokenizer.json"), os.path.join(folder, "ids.bin")
    code, stdout, stderr = run(0, "tokenizer", "train", "--size", "270", "--to", path, data)
    check("tokenizer train", code == 0 and "270 tokens" in stdout, stdout + stderr)
    code, stdout, stderr = run(0, "tokenize", "--tokenizer", path, "--to", ids, data)
    with open(ids, "rb") as f:
        head, tokens = struct.unpack("<256i", f.read(1024)), f.read()
    check("tokenize: llm.c's file, the end token last", code == 0 and head[:3] == (20240520, 1, len(tokens) // 2)
          and struct.unpack("<H", tokens[-2:])[0] == 269 and len(tokens) < 2 * os.path.getsize(data), str(head[:3]) + stderr)
    alone, pair = (train(folder, "bpe%d" % ranks, ranks, data, "--tokenizer", path) for ranks in (1, 2))
    check("1 and 2 ranks learn the same with --tokenizer", alone and pair and close(alone[0], pair[0]) and "vocabulary 270" in pair[2], str(pair))
    out = os.path.join(folder, "bpe2")
    code, stdout, stderr = run(0, "sample", os.path.join(out, "model"), "--prompt", "ring ", "--sample-len", "20")
    check("its sample", code == 0 and "\nring " in stdout, stdout + stderr)
    again = train(folder, "again", 2, data, "--init", os.path.join(out, "model"), "--steps", "2")
    check("--init takes its tokenizer", again and "vocabulary 270" in again[2], str(again))
    code, _, stderr = run(2, *SMALL, "--data", data, "--tokenizer", data)
    check("what is no tokenizer is refused", code == 1 and "--tokenizer" in stderr, stderr)
    for args, word in ((["tokenizer", "train", "--size", "5", "--to", path, data], "--size"), (["tokenize", "--to", ids, data], "--tokenizer"), (["tokenizer", "lose"], "train"),
                       (["--tokenizer", path, "--vocab", "byte"], "--vocab")):
        code, _, stderr = run(0, *args)
        check("refused: " + args[-1][-10:], code == 2 and word in stderr, stderr)


def read_llmc(path):
    """As llm.c's dataloader does."""
    with open(path, "rb") as f:
        head = struct.unpack("<256i", f.read(1024))
        wide = head[0] == 20240801
        assert head[:2] in ((20240520, 1), (20240801, 7))
        return list(struct.unpack("<%d%s" % (head[2], "I" if wide else "H"), f.read()))


def read_nanogpt(path):
    """As nanoGPT's np.memmap of uint16."""
    with open(path, "rb") as f:
        text = f.read()
    return list(struct.unpack("<%dH" % (len(text) // 2), text))


def write_llmc(path, ids, wide=False, count=None):
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *(20240801, 7) if wide else (20240520, 1), len(ids) if count is None else count, *[0] * 253)
                + struct.pack("<%d%s" % (len(ids), "I" if wide else "H"), *ids))
    return path


def write_nanogpt(path, ids, wide=False):
    with open(path, "wb") as f:
        f.write(struct.pack("<%d%s" % (len(ids), "I" if wide else "H"), *ids))
    return path


def token_files(folder, data):
    """Files of tokens by their owners' readers and writers, and what is damaged named with its offset."""
    tokenizer, ids, raw = (os.path.join(folder, n) for n in ("tokenizer.json", "ids.bin", "raw.bin"))
    run(0, "tokenizer", "train", "--size", "270", "--to", tokenizer, data)
    for more, to in (([], ids), (["--raw"], raw)):
        run(0, "tokenize", "--tokenizer", tokenizer, "--to", to, *more, data)
    want = read_llmc(ids)
    check("both kinds hold the same tokens", want == read_nanogpt(raw) and len(want) > 500 and want[-1] == 269)
    with open(data, encoding="utf-8") as f:
        text = f.read() + "<|endoftext|>"
    for name, path, more in (("llm.c's", write_llmc(ids, want), []), ("llm.c's of 32 bits", write_llmc(ids + "4", want, True), []),
                             ("nanoGPT's", write_nanogpt(raw, want), []), ("raw ones of 32 bits", write_nanogpt(raw + "4", want, True), ["--token-bytes", "4"])):
        code, stdout, stderr = run(0, "decode", "--tokenizer", tokenizer, *more, path)
        check("decode: %s gives the text back" % name, code == 0 and stdout == text, stderr)
    special = os.path.join(folder, "special")
    with open(special, "w", encoding="utf-8") as f:
        f.write("ring<|endoftext|>tree")
    counts = []
    for more in ([], ["--special"]):
        run(0, "tokenize", "--tokenizer", tokenizer, "--to", ids, *more, special)
        counts.append(read_llmc(ids).count(269))
    back = os.path.join(folder, "back")
    code, _, stderr = run(0, "decode", "--tokenizer", tokenizer, "--to", back, ids)
    check("--special: the end token in a text is one token, else text", counts == [1, 2] and code == 0 and read(folder, "back") == "ring<|endoftext|>tree<|endoftext|>",
          str(counts) + stderr)
    odd = write_nanogpt(raw, want)
    with open(odd, "ab") as f:
        f.write(b"x")
    for name, path, word in (("a false count", write_llmc(ids, want, count=len(want) + 1), "offset 8"), ("a negative count", write_llmc(ids + "n", want, count=-1), "offset 8"),
                             ("an odd size", odd, "offset %d" % (2 * len(want))), ("a token that is none", write_llmc(ids + "v", want[:7] + [270]), "offset %d" % (1024 + 14)),
                             ("no tokens", write_llmc(ids + "0", []), "offset 1024"), ("an empty file", write_nanogpt(raw + "0", []), "empty"), ("a directory", folder, "not a file")):
        code, _, stderr = run(0, "decode", "--tokenizer", tokenizer, "--to", back, path)
        check("refused with file and offset: " + name, code == 1 and path in stderr and word in stderr, stderr)


def sources(folder, data):
    """Directories, patterns, token files of both owners and mixtures are learned alike by any number of ranks, and go on from a state."""
    parts, tokenizer = os.path.join(folder, "parts"), os.path.join(folder, "tokenizer.json")
    os.makedirs(parts)
    with open(data, "rb") as f:
        text = f.read()
    for i in range(3):
        with open(os.path.join(parts, "part%d.txt" % i), "wb") as f:
            f.write(text[i * 1500:(i + 1) * 1500 if i < 2 else len(text)])
    one = train(folder, "one", 2, data, "--vocab", "byte")
    for name, what in (("a directory", parts), ("a pattern", parts + "/p*[0-9].txt"), ("a weight by itself", parts + "@7")):
        got = train(folder, "many", 2, what, "--vocab", "byte")
        check("%s is the text of its files" % name, one and got and got[1] == one[1])
    run(0, "tokenizer", "train", "--size", "270", "--to", tokenizer, data)
    ids = os.path.join(folder, "ids.bin")
    run(0, "tokenize", "--tokenizer", tokenizer, "--to", ids, data)
    tokens = read_llmc(ids)
    shards = os.path.join(folder, "shards")
    os.makedirs(shards)
    write_llmc(shards + "/a.bin", tokens[:700])
    write_llmc(shards + "/b.bin", tokens[700:900], True)
    write_nanogpt(shards + "/c.bin", tokens[900:])
    text_too = train(folder, "of_text", 2, data, "--tokenizer", tokenizer, "--stride", "context")
    for name, what, more in (("llm.c's file", ids, []), ("a directory of shards of several kinds", shards, []),
                             ("llm.c's of 32 bits", write_llmc(ids + "4", tokens, True), []), ("nanoGPT's file", write_nanogpt(folder + "/raw.bin", tokens), []),
                             ("raw 32 bits", write_nanogpt(folder + "/raw4.bin", tokens, True), ["--token-bytes", "4"])):
        got = train(folder, "bin", 2, what, "--tokenizer", tokenizer, *(more or ["--stride", "context"]))
        check("%s is learned as the text is" % name, text_too and got and got[1] == text_too[1])
    every = train(folder, "every", 2, ids, "--tokenizer", tokenizer, "--stride", "1")
    check("--stride 1 reads other windows", every and text_too and every[1] != text_too[1])
    mixed = ["--tokenizer", tokenizer, "--data", data + "@1", "--val-data", data, "--save-every", "6"]
    whole, three = (train(folder, "mix%d" % ranks, ranks, ids + "@3", *mixed) for ranks in (1, 3))
    check("1 and 3 ranks learn the same mixture", whole and three and close(whole[0], three[0]), str(three))
    out = os.path.join(folder, "mix3")
    shutil.rmtree(os.path.join(out, "state", "step-00000012-1.0"))
    args = [*SMALL, "--data", ids + "@3", *mixed, "--out", out, "--no-sample"]
    code, stdout, stderr = run(2, *args, "--resume")
    check("and go on with 2", code == 0 and "continuing after step 6" in stdout and close([json.loads(line) for line in read(out, "metrics.jsonl").splitlines()], whole[0]), stdout + stderr)
    for name, flags, word in (("another weight", ["--data", ids + "@2"], "ids.bin"), ("another text", ["--data", ids + "4@3"], "ids.bin4"),
                              ("a third source", [*args[len(SMALL):], "--data", data], "text")):
        flags = flags if len(flags) > 2 else [*flags, *args[len(SMALL) + 2:]]
        code, _, stderr = run(1, *SMALL, *flags, "--resume")
        check("--resume refuses " + name, code == 1 and "another text" in stderr and word in stderr, stderr)
    code, _, stderr = run(1, *args, "--resume", "--stride", "context")
    check("--resume refuses another --stride", code == 1 and "--stride is context and was auto" in stderr, stderr)
    big = os.path.join(folder, "big")
    with open(big, "wb") as f:
        f.truncate(65 << 20)
    bad = write_llmc(folder + "/bad.bin", tokens[:70] + [270] + tokens[70:])
    for name, flags, word in (("a token that is none", ["--data", bad, "--tokenizer", tokenizer], "bad.bin: offset %d: token 270" % (1024 + 140)),
                              ("tokens without a vocabulary", ["--data", ids], "--tokenizer"), ("a directory without files", ["--data", os.path.join(folder, "mix1/state")], "no files"),
                              ("a pattern that fits nothing", ["--data", parts + "/q*"], "no files"), ("a weight of 0", ["--data", data + "@0"], "must be more than 0"),
                              ("a large text", ["--data", big], "ddp_gpt tokenize"), ("a false head", ["--data", write_llmc(folder + "/false.bin", tokens, count=5), "--tokenizer", tokenizer], "offset 8"),
                              ("a short --val-data", ["--data", data, "--val-data", write_nanogpt(folder + "/short.txt", [1, 2])], "--val-data"),
                              ("--token-bytes 3", ["--data", ids, "--token-bytes", "3"], "--token-bytes 3")):
        code, _, stderr = run(2, *SMALL, *flags)
        check("refused: " + name, code in (1, 2) and stderr.count(word) >= 2, stderr)


def lines_of_json(folder, data):
    """Each line is a document; what is damaged is named with line and offset."""
    tokenizer, ids = os.path.join(folder, "tokenizer.json"), os.path.join(folder, "ids.bin")
    with open(data, encoding="utf-8") as f:
        words = f.read().split(" ")
    documents = [" ".join(words[i:i + 8]) + ("\n\"quoted\" \U0001f642" if i % 3 else "") for i in range(0, len(words), 8)]
    plain, lines = os.path.join(folder, "documents"), os.path.join(folder, "lines.jsonl")
    os.makedirs(plain)
    for i, d in enumerate(documents):
        with open(os.path.join(plain, "%04d" % i), "w", encoding="utf-8", newline="") as f:
            f.write(d)
    with open(lines, "w", encoding="utf-8", newline="") as f:
        for i, d in enumerate(documents):
            f.write(json.dumps({"id": i, "meta": {"deep": [1, "x"]} if i % 5 == 0 else None, "story": d}, ensure_ascii=i % 2 == 0) + ("\n" if i % 4 else "\r\n\n"))
    run(0, "tokenizer", "train", "--size", "300", "--to", tokenizer, "--field", "story", lines)
    got = []
    for args in ([plain], ["--field", "story", lines]):
        run(0, "tokenize", "--tokenizer", tokenizer, "--to", ids, *args)
        got.append(read_llmc(ids))
    check("tokenize: lines are what files of their documents are, an end token behind each", got[0] == got[1] and got[0].count(got[0][-1]) == len(documents))
    a, b = train(folder, "files", 2, plain, "--vocab", "byte"), train(folder, "lines", 3, lines, "--vocab", "byte", "--field", "story")
    check("and are learned alike", a and b and close(a[0], b[0]), str(b and b[2]))
    with open(lines, "rb") as f:
        good = f.read()
    for name, line, word in (("no UTF-8", b'{"story":"a\xff"}', "decode byte"), ("half a pair", b'{"story":"\\ud83d"}', "invalid Unicode"), ("another field", b'{"text":"a"}', 'no field "story"'),
                             ("a number", b'{"story":5}', "not a string"), ("cut off", b'{"story":"a', "end of input"), ("a list", b"[]", "not an object")):
        bad = os.path.join(folder, "bad.jsonl")
        with open(bad, "wb") as f:
            f.write(good + line + (b"" if name == "cut off" else b"\n"))
        code, _, stderr = run(2, *SMALL, "--data", bad, "--field", "story")
        said = re.search(r"bad.jsonl: line (\d+), offset (\d+): .*", stderr)
        check("refused: " + name, code == 1 and said and word in said[0] and int(said[1]) == good.count(b"\n") + 1 and len(good) <= int(said[2]) <= len(good) + len(line), stderr)
        code, stdout, stderr = run(2, *SMALL, "--data", bad, "--field", "story", "--skip-bad", "1", "--vocab", "byte", "--steps", "2", "--no-sample")
        check("--skip-bad 1: left out and named", code == 0 and "left out: " in stdout and word in stdout and "bad.jsonl: line " in stdout, stdout + stderr)
    with open(bad, "ab") as f:
        f.write(b"\n5\n")
    code, _, stderr = run(2, *SMALL, "--data", bad, "--field", "story", "--skip-bad", "1")
    check("the second is one too many", code == 1 and "line %d" % (good.count(b"\n") + 3) in stderr, stderr)


def documents_apart(folder, data):
    """Documents of many lengths: the same on any number of ranks, padded or not, dealt by length or not."""
    with open(data, encoding="utf-8") as f:
        text = f.read()
    x, at, documents = 1, 0, []
    while at < len(text):
        x = (x * 1103515245 + 12345) % 2**31
        documents.append(text[at:at + 2 + int(30 / (1 + (x >> 16) % 30))])
        at += len(documents[-1])
    lines = os.path.join(folder, "many.jsonl")
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": d}) + "\n" for d in documents)
    apart = ["--vocab", "byte", "--documents", "apart", "--batch", "30"]
    # A pass for each sequence pads nothing.
    alone = train(folder, "alone", 1, lines, *apart, "--accumulate", "30")
    sums = alone and [m["tokens"] for m in alone[0]]
    check("targets are counted", alone and all(0 < b - a < 30 * 16 for a, b in zip([0, *sums], sums)) and len({b - a for a, b in zip(sums, sums[1:])}) > 3, str(sums))
    for ranks, more in ((1, []), (2, []), (3, ["--balance"]), (2, ["--balance", "--accumulate", "4"]), (2, ["--zero", "1", "--balance"])):
        got = train(folder, "apart", ranks, lines, *apart, *more)
        check("%d ranks %s learn what one document at a time teaches" % (ranks, " ".join(more)), alone and got and close(got[0], alone[0])
              and [m["tokens"] for m in got[0]] == sums, got and str(got[0][-1]))
    got = train(folder, "apart", 3, lines, *apart, "--balance", "--per-rank")
    loads = got and [m["rank_tokens"] for m in got[0]]
    check("--balance: no rank has more than 1.1 times the mean", loads and all(max(n) <= 1.1 * sum(n) / 3 for n in loads), str(loads))
    world = {(got and got[1]) for got in (train(folder, "world", ranks, lines, *apart, "--deterministic=world", "--leaves", "12") for ranks in (1, 2, 5))}
    check("--deterministic=world: one model on 1, 2 and 5 ranks", len(world) == 1 and None not in world)
    smooth = [train(folder, "smooth", ranks, lines, *apart, "--label-smoothing", "0.1", "--dropout", "0.1", *more) for ranks, more in ((1, ["--accumulate", "30"]), (2, []))]
    check("smoothed and dropped, too", all(smooth) and close(smooth[0][0], smooth[1][0]))
    tokenizer, ids = os.path.join(folder, "tokenizer.json"), os.path.join(folder, "many.bin")
    run(0, "tokenizer", "train", "--size", "270", "--to", tokenizer, lines)
    run(0, "tokenize", "--tokenizer", tokenizer, "--to", ids, lines)
    a, b = (train(folder, "ends", 2, what, "--tokenizer", tokenizer, *apart[2:]) for what in (lines, ids))
    check("a file of tokens: documents end at end tokens", a and b and a[1] == b[1])
    whole = train(folder, "whole", 2, lines, *apart, "--save-every", "6", "--balance")
    shutil.rmtree(os.path.join(folder, "whole/state/step-00000012-1.0"))
    code, stdout, stderr = run(3, *SMALL, "--data", lines, *apart, "--balance", "--out", os.path.join(folder, "whole"), "--resume", "--no-sample")
    after = [json.loads(line) for line in read(os.path.join(folder, "whole"), "metrics.jsonl").splitlines()]
    check("--resume with another number of ranks", code == 0 and whole and close(after, whole[0]) and [m["tokens"] for m in after] == sums, stdout + stderr)
    for args, word in ((["--balance"], "--balance"), ([*apart, "--balance", "--dropout", "0.1"], "--balance"), ([*apart, "--balance", "--deterministic=world"], "--balance"),
                       ([*apart, "--balance", "--zero", "2"], "--balance"), (["--documents", "apart", "--data", data], "too few documents")):
        code, _, stderr = run(2, *SMALL, "--data", lines, *args) if "--data" not in args else run(2, *SMALL, *args)
        check("refused: " + " ".join(args)[-40:], code in (1, 2) and stderr.count(word) >= 2, stderr)


def any_number_of_ranks(folder, data):
    """Nothing need divide anything: ranks without a sequence, passes without one."""
    want = train(folder, "ten", 1, data, "--batch", "10")
    for ranks, args in ((3, []), (4, ["--accumulate", "2"]), (7, ["--accumulate", "4"]), (3, ["--zero", "2", "--accumulate", "3"]), (4, ["--zero", "1"])):
        got = train(folder, "dealt", ranks, data, "--batch", "10", *args)
        check("--batch 10 on %d ranks %s" % (ranks, " ".join(args)), want and got and close(got[0], want[0]), str(got))
    want = train(folder, "three", 1, data, "--batch", "3")
    for args in ([], ["--zero", "1"]):
        got = train(folder, "dealt", 5, data, "--batch", "3", *args)
        check("--batch 3 on 5 ranks %s" % " ".join(args), want and got and close(got[0], want[0]), str(got))
    code, _, stderr = run(3, *SMALL, "--data", data, "--batch", "2", "--local-steps", "2")
    check("steps of its own need a sequence", code == 1 and "--batch 2 is less than a sequence for each of the 3 ranks" in stderr, stderr)
    code, _, stderr = run(0, *SMALL, "--data", data, "--deterministic=world", "--zero", "2")
    check("exact sums and slices of gradients", code == 2 and "--zero 2" in stderr, stderr)
    script = os.path.join(folder, "threads.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write('[ "$COLL_RANK" = 1 ] && exec "$@" --threads 2 || exec "$@"\n')
    p = subprocess.run([COLLRUN, "-n", "2", "--no-prefix", "--timeout", "60", "sh", script, PROGRAM, *SMALL, "--data", data, "--deterministic=world"],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False)
    check("other threads, other bits: refused", p.returncode == 1 and b"this rank has kernels" in p.stderr and b"--threads 2" in p.stderr, str(p))


def validation_reads_each_window_once(folder, data):
    """The program itself counts windows by number and ends with an error when one is missed or read twice."""
    for windows, told in ((1024, "24 of 24"), (0, "24 of 24"), (5, "5 of 24")):
        losses, said = [], []
        for ranks in (1, 2, 3, 5):
            got = train(folder, "val%d" % ranks, ranks, data, "--batch", "30", "--steps", "2", "--no-sample", "--val-windows", str(windows))
            losses.append(got and got[0][-1]["val_loss"])
            said.append(got and " validated on %s windows" % told in got[2])
        check("validation of %d windows on 1, 2, 3 and 5 ranks" % windows,
              None not in losses and max(losses) - min(losses) < 1e-4 and all(said), "%s %s" % (losses, said))


def read(out, name):
    with open(os.path.join(out, name), encoding="utf-8") as f:
        return f.read()


def points(out):
    """Of each line of the loss curve."""
    return [len(line.split('points="')[1].split('"')[0].split()) for line in read(out, "loss.svg").splitlines() if "<polyline" in line]


def files_of_the_first_rank(folder, data):
    """--out and --resume are the first rank's, and what cannot be written is told."""
    out = os.path.join(folder, "first")
    script = os.path.join(folder, "first.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write('[ "$COLL_RANK" = 0 ] && exec "$@" --out %s --resume || exec "$@"\n' % out)
    for name in ("state", "resumed"):
        p = subprocess.run([COLLRUN, "-n", "2", "--no-prefix", "--timeout", "60", "sh", script, PROGRAM, *SMALL, "--data", data, "--zero", "1",
                            "--save-every", "6"], stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False)
        check("files of the first rank alone: " + name, p.returncode == 0 and (b"after step 12" in p.stdout) == (name == "resumed"),
              p.stderr.decode("utf-8", "replace"))
    full = os.path.join(folder, "full")
    os.makedirs(full)
    for name in ("metrics.jsonl", "loss.svg"):
        os.symlink("/dev/full", os.path.join(full, name))
    code, _, stderr = run(2, *SMALL, "--data", data, "--out", full, "--resume")
    check("a full disk is told", code == 1 and "metrics.jsonl" in stderr and "loss.svg" in stderr, stderr)
    code, stdout, stderr = run(2, *SMALL, "--data", data, "--trace", "/no/such")
    check("a trace that cannot be written costs nothing else", code == 1 and "/no/such.1" in stderr and "final val_loss=" in stdout, stdout + stderr)
    with open("/dev/full", "w", encoding="utf-8") as full:
        p = subprocess.run([PROGRAM, "sample", "--model", os.path.join(out, "model")], stdout=full, stderr=subprocess.PIPE, check=False)
    check("and so is a sample that nobody gets", p.returncode == 1 and b"sample" in p.stderr, str(p))
    code, _, stderr = run(2, *SMALL, "--data", data, "--out", os.path.join(folder, "wild"), "--lr", "10", "--weight-decay", "10",
                          "--clip", "0", "--steps", "40", "--local-steps", "20")
    lines = [json.loads(line, parse_constant=lambda x: 1 / 0) for line in read(os.path.join(folder, "wild"), "metrics.jsonl").splitlines()]
    check("what is not finite leaves the metrics JSON", code == 1 and "not finite" in stderr and len(lines) > 3, stderr)


def resuming(folder, data):
    """Killed at once and for good, a run goes on from its last state to the same bits."""
    for name, args in [("plain", []), ("zero", ["--zero", "1"]), ("int8", ["--wire", "int8", "--bucket-mb", "0.02"]),
                       ("powersgd", ["--wire", "powersgd", "--powersgd-rank", "4"]),
                       ("local", ["--local-steps", "4"]), ("dropout", ["--dropout", "0.1", "--accumulate", "2"])]:
        args = ["--steps", "60", "--save-every", "7", "--no-sample", "--val-every", "0", *args]
        want = train(folder, "whole" + name, 2, data, *args)
        out = os.path.join(folder, "killed" + name)
        command = [COLLRUN, "-n", "2", "--no-prefix", PROGRAM, *SMALL, "--data", data, "--out", out, *args]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        while p.poll() is None and not states(out):
            p.stdout.readline()
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        p.stdout.close()
        left = states(out)
        code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", out, "--resume", *args)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            steps = [json.loads(line)["step"] for line in f]
        check("resumed (%s): each step is in the metrics once" % name, steps == list(range(1, 61)), str(steps))
        check("resumed after kill -9 (%s): the same bits" % name,
              want and left and code == 0 and "continuing after step" in stdout
              and sha(os.path.join(out, MODEL)) == want[1] and parts(out) == parts(os.path.join(folder, "whole" + name)), stdout + stderr)
        check("resumed (%s): all steps are in the curve" % name, points(out) == [60, 1], str(points(out)))
    code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", out, "--resume", *args)
    check("a run that had ended is told again", want and code == 0 and "final val_loss=%.4f" % want[0][-1]["val_loss"] in stdout,
          stdout + stderr)
    check("and keeps its curve", points(out) == [60, 1] and "nan" not in read(out, "loss.svg"), read(out, "loss.svg"))
    other = os.path.join(folder, "backwards")
    with open(data, "rb") as f, open(other, "wb") as g:
        g.write(f.read()[::-1])
    code, _, stderr = run(2, *SMALL, "--data", other, "--out", out, "--resume", *args)
    check("a state of another text with the same characters is refused", code == 1 and "another text" in stderr, stderr)
    for flag, value in (("--width", "64"), ("--seed", "9"), ("--vocab", "byte"), ("--layers", "3")):
        code, _, stderr = run(2, *SMALL, "--data", data, "--out", out, "--resume", *args, flag, value)
        check("a state of another model is refused: " + flag, code == 1 and "%s is %s and was" % (flag, value) in stderr, stderr)
    lines = read(out, "metrics.jsonl")
    for more in (["--steps", "66"], ["--lr", "0.01", "--log-every", "2"], ["--save-every", "3"], ["--bucket-mb", "1"], ["--batch", "24", "--steps", "70"],
                 ["--zero", "1", "--accumulate", "1"], ["--warmup", "1", "--beta2", "0.95", "--adam-eps", "1e-9"]):
        code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", out, "--resume", *args, "--steps", "66", *more)
        check("all else may change, and is said: " + " ".join(more), code == 0 and "--resume: %s was" % more[0] in stdout or more[-1] == "66", stdout + stderr)
    check("longer than it was planned", '"step":66,' in read(out, "metrics.jsonl") and read(out, "metrics.jsonl").startswith(lines), stderr)
    runs = json.loads(read(out, "run.json"))
    check("run.json has all starts, and one id", len(runs["starts"]) == 10 and runs["starts"][1]["flags"]["steps"] == "60"
          and all(json.loads(read(s, "state.json"))["run_id"] == runs["run_id"] for s in states(out)), str(runs))


def started(folder, ranks, *args):
    """A job, after its third line of progress, and what it said; its ranks' processes are in the files pid.RANK."""
    script = os.path.join(folder, "pids.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write('echo $$ >%s.$COLL_RANK\nexec "$@"\n' % script)
    p = subprocess.Popen([COLLRUN, "-n", str(ranks), "--no-prefix", "--grace", "60", "sh", script, PROGRAM, *SMALL, "--steps", "1000000", *args],
                         env=dict(os.environ, OPENBLAS_NUM_THREADS="1"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = ""
    while said.count("/1000000 ") < 3:
        line = p.stdout.readline().decode("utf-8", "replace")
        if not line:
            break
        said += line
    return p, [int(read(folder, "pids.sh.%d" % r)) for r in range(ranks)], said


def stopping(folder, data):
    """Whatever asks a run to leave, all ranks save at one step and go on from there to the same bits."""
    whole = train(folder, "unstopped", 2, data)
    flag = os.path.join(folder, "flag")
    with open(flag, "w", encoding="utf-8"):
        pass
    for name, args in [("plain", []), ("zero", ["--zero", "1"]), ("local", ["--local-steps", "4"])]:
        want = whole if name == "plain" else train(folder, "unstopped" + name, 2, data, *args)
        out = os.path.join(folder, "stopped" + name)
        code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", out, "--stop-file", flag, *args)
        check("a stop file (%s): both save and leave" % name, code == 75 and "asked to leave: ended after step %d of 12" % (4 if name == "local" else 1)
              in stdout and "sample" not in stdout, "%d %s" % (code, stdout + stderr))
        code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", out, "--resume", *args)
        check("and go on to the same bits (%s)" % name, name == "local" or (want and code == 0 and "continuing after step" in stdout
              and sha(os.path.join(out, MODEL)) == want[1]), stdout + stderr)
    code, stdout, stderr = run(2, *SMALL, "--data", data, "--minutes", "1e-9")
    check("a time limit; without --out nothing is saved", code == 75 and "nothing is saved without --out" in stdout, stdout + stderr)
    for name, number, to_rank, want in [("term", signal.SIGTERM, None, 75), ("interrupt", signal.SIGINT, None, 130), ("hangup", signal.SIGHUP, None, 75),
                                        ("one", signal.SIGTERM, 1, 75), ("user", signal.SIGUSR2, 0, 75)]:
        out = os.path.join(folder, "signalled" + name)
        p, pids, said = started(folder, 2, "--data", data, "--out", out)
        os.kill(p.pid if to_rank is None else pids[to_rank], number)
        said += p.communicate(timeout=120)[0].decode("utf-8", "replace")
        check("%s to %s: saved, status %d" % (number.name, "collrun" if to_rank is None else "rank %d" % to_rank, want),
              p.returncode == want and "asked to leave" in said and os.path.exists(os.path.join(out, MODEL)), "%d %s" % (p.returncode, said[-2000:]))
        last = said.split("asked to leave: ended after step ")[-1].split(" ")[0]
        code, stdout, stderr = run(2, *SMALL, "--steps", "1000000", "--data", data, "--out", out, "--resume", "--stop-file", flag)
        check("and goes on after that step", code == 75 and "continuing after step %s\n" % last in stdout, stdout + stderr)
    out = os.path.join(folder, "saves")
    p, pids, said = started(folder, 2, "--data", data, "--out", out)
    os.kill(pids[1], signal.SIGUSR1)
    while not states(out) and p.poll() is None:
        p.stdout.readline()
    steps = len(read(out, "metrics.jsonl").splitlines())
    while p.poll() is None and len(read(out, "metrics.jsonl").splitlines()) < steps + 3:
        p.stdout.readline()
    check("SIGUSR1: saved, and it goes on", p.poll() is None and states(out))
    os.kill(pids[0], signal.SIGKILL)
    p.communicate()


def states(out):
    """Paths of whole states, newest first."""
    folder = os.path.join(out, "state")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    keyed = [([int(x) for x in re.match(r"step-(\d+)-(\d+)\.(\d+)$", n).groups()], n) for n in names if re.match(r"step-[\d.-]+$", n)]
    return [os.path.join(folder, n) for _, n in sorted(keyed, key=lambda k: (k[0][1], k[0][2], k[0][0]), reverse=True)]


def parts(out):
    """Hashes of the newest state's parts."""
    newest = states(out)[0]
    return [(n, sha(os.path.join(newest, n))) for n in sorted(os.listdir(newest)) if n.endswith(".safetensors")]


def output_directory(folder, data):
    """What an earlier run left is neither overwritten nor mixed with another without a word."""
    out = os.path.join(folder, "used")
    args = ["--data", data, "--out", out, "--no-sample"]
    code, stdout, stderr = run(2, *SMALL, *args, "--save-every", "3", "--keep", "3", "--run-id", "first.1", "--keep-best")
    check("states: the newest three, and the best model", code == 0 and [os.path.basename(s) for s in states(out)]
          == ["step-00000012-1.0", "step-00000009-1.0", "step-00000006-1.0"] and os.path.exists(os.path.join(out, "best/config.json")), stdout + stderr)
    with open(os.path.join(out, "of a stranger"), "w", encoding="utf-8") as f:
        f.write("stays")
    before = {p: sha(p) for p in files(out)}
    for left in (None, "run.json", "metrics.jsonl", "loss.svg", "model", "best"):
        if left:
            shutil.move(os.path.join(out, left), os.path.join(folder, "aside"))
        code, stdout, stderr = run(2, *SMALL, *args, "--seed", "9")
        check("refused, though %s is gone" % left, code == 1 and stderr.count("--resume goes on with it, --overwrite removes it") == 2, stdout + stderr)
        if left:
            shutil.move(os.path.join(folder, "aside"), os.path.join(out, left))
    check("and nothing has changed", before == {p: sha(p) for p in files(out)})
    code, stdout, stderr = run(2, *SMALL, *args, "--resume", "--run-id", "second")
    check("another run's id is refused", code == 1 and "--run-id second" in stderr and "first.1" in stderr, stderr)
    code, stdout, stderr = run(2, *SMALL, *args, "--resume", "7")
    check("a step without a state: those that are there", code == 1 and "it has: 6 9 12" in stderr, stderr)
    code, stdout, stderr = run(3, *SMALL, *args, "--resume", "6", "--keep", "9")
    check("an older step, three ranks", code == 0 and "continuing after step 6\n" in stdout and "had 2 ranks and now has 3" in stdout
          and json.loads(read(out, "run.json"))["starts"][1]["resumed"] == 6, stdout + stderr)
    code, stdout, stderr = run(1, *SMALL, *args, "--overwrite", "--steps", "2", "--batch", "24")
    check("--overwrite removes what was ours, and no more", code == 0 and not states(out) and not os.path.exists(os.path.join(out, "best"))
          and len(json.loads(read(out, "run.json"))["starts"]) == 1 and os.path.exists(os.path.join(out, "of a stranger")), str(files(out)))
    new = os.path.join(folder, "unused")
    code, stdout, stderr = run(2, *SMALL, "--data", data, "--out", new, "--resume", "latest")
    check("--resume without a state begins, and says so", code == 0 and "starting at step 0" in stdout and os.path.exists(os.path.join(new, MODEL)), stdout + stderr)


def files(out):
    return sorted(os.path.join(top, n) for top, _, names in os.walk(out) for n in names)


def damaged_states(folder, data):
    """The newest state that is whole is taken, whatever befell the others; the damaged one is named."""
    args = ["--data", data, "--no-sample", "--save-every", "6", "--wire", "int8", "--bucket-mb", "0.02"]
    out = os.path.join(folder, "intact")
    run(2, *SMALL, *args, "--out", out)
    x = 7
    for name in sorted(os.listdir(states(out)[0])):
        size = os.path.getsize(os.path.join(states(out)[0], name))
        for kind in ("flip", "flip", "cut", "gone"):
            x = (x * 1103515245 + 12345) % 2**31
            hurt = os.path.join(folder, "hurt")
            shutil.rmtree(hurt, ignore_errors=True)
            shutil.copytree(out, hurt)
            victim = os.path.join(states(hurt)[0], name)
            with open(victim, "r+b") as f:
                if kind == "cut":
                    f.truncate((x >> 8) % size)
                else:
                    f.seek((x >> 8) % size)
                    byte = f.read(1)[0]
                    f.seek((x >> 8) % size)
                    f.write(bytes([byte ^ 1 << x % 8]))
            if kind == "gone":
                os.unlink(victim)
            code, stdout, stderr = run(2, *SMALL, *args, "--out", hurt, "--resume")
            check("%s %s: the state before, and this one is named" % (name, kind), code == 0 and "continuing after step 6\n" in stdout
                  and "an older state is looked for" in stderr and "step-00000012-1.0" in stderr, stdout + stderr)


def states_for_any_number_of_ranks(folder, data):
    """Any number of ranks goes on from what any number wrote, whether they see its directory or not."""
    want = train(folder, "one", 1, data)
    flag = os.path.join(folder, "leave")
    with open(flag, "w", encoding="utf-8"):
        pass
    for before, after, first, then in ((1, 3, [], []), (4, 2, [], ["--zero", "1"]), (2, 4, ["--zero", "1"], ["--zero", "2"]), (3, 2, ["--zero", "2"], [])):
        out = os.path.join(folder, "from%dto%d" % (before, after))
        run(before, *SMALL, "--data", data, "--out", out, "--stop-file", flag, *first)
        code, stdout, stderr = run(after, *SMALL, "--data", data, "--out", out, "--resume", *then)
        got = [json.loads(line) for line in read(out, "metrics.jsonl").splitlines()]
        check("%d ranks %s to %d %s" % (before, first, after, then), code == 0 and want and close(got[-5:], want[0][-5:]), stdout + stderr)
    if os.geteuid() != 0:
        return
    out = os.path.join(folder, "unseen")
    os.makedirs(out)
    script = os.path.join(folder, "unseen.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write('if [ "$COLL_RANK" != 1 ]; then exec "$@"; fi\nexec unshare -m sh -c \'mount -t tmpfs none "$0" && exec "$@"\' %s "$@"\n' % out)
    for zero in ("0", "2"):
        seen = train(folder, "seen", 3, data, "--save-every", "6", "--zero", zero)
        for steps in ("6", "12"):
            p = subprocess.run([COLLRUN, "-n", "3", "--no-prefix", "sh", script, PROGRAM, *SMALL, "--steps", steps, "--warmup", "1", "--data", data, "--out", out,
                                "--save-every", "6", "--zero", zero, "--overwrite" if steps == "6" else "--resume"], stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=100, check=False)
        check("a rank that does not see the directory (zero %s): its part is there" % zero, p.returncode == 0 and seen and
              b"continuing after step 6" in p.stdout and len(parts(out)) == 3, str(p))


def events(path):
    """(step, bytes of the event) of a file of TensorBoard, whose checksums are right."""
    def crc32c(data):
        c = 0xffffffff
        for byte in data:
            c ^= byte
            for _ in range(8):
                c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
        c ^= 0xffffffff
        return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
    with open(path, "rb") as f:
        data = f.read()
    found, at = [], 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        event = data[at + 12:at + 12 + size]
        if struct.unpack_from("<I", data, at + 8)[0] != crc32c(data[at:at + 8]) or struct.unpack_from("<I", data, at + 12 + size)[0] != crc32c(event):
            return []
        found.append((event[10], event))
        at += size + 16
    return found


def watching(folder, data):
    """Metrics as JSON and CSV and for TensorBoard, which goes on where a resumed run does; what is slow is named."""
    out = os.path.join(folder, "watched")
    flag = os.path.join(folder, "watchflag")
    with open(flag, "w", encoding="utf-8"):
        pass
    args = ["--data", data, "--no-sample", "--out", out, "--tensorboard", "--run-id", "watched.1", "--epochs", "1", "--batch", "600", "--save-every", "epoch",
            "--val-every", "epoch", "--metrics", "csv"]
    steps = SMALL.index("--steps")
    small = SMALL[:steps] + SMALL[steps + 2:]
    code, stdout, stderr = run(2, *small, *args, "--stop-file", flag)
    check("an epoch in steps, stopped after the first", code == 75 and "after step 1 of 6" in stdout, stdout + stderr)
    code, stdout, stderr = run(2, *small, *args, "--resume")
    lines = [line.split(",") for line in read(out, "metrics.csv").splitlines()]
    rows = [dict(zip(lines[0], line)) for line in lines[1:]]
    check("CSV: each step once, with what else there is", code == 0 and [r["step"] for r in rows] == ["1", "2", "3", "4", "5", "6"] and all(len(line) == len(lines[0]) for line in lines)
          and float(rows[5]["epoch"]) >= 1 > float(rows[4]["epoch"]) and rows[5]["tokens"] == "57600" and rows[0]["ranks"] == "2" and float(rows[0]["rss_mb"]) > 1
          and rows[0]["val_loss"] == "" and rows[5]["val_loss"] != "", str(rows) + stderr)
    check("the remaining time on each line, a state at the end of the epoch", len(re.findall(r"  left \d+:\d\d$", stdout, re.M)) == 5 and len(states(out)) == 2, stdout)
    files_ = sorted((n for n in os.listdir(out) if n.startswith("events.out.tfevents.")), key=lambda n: os.path.getmtime(os.path.join(out, n)))
    first, second = [events(os.path.join(out, n)) for n in files_]
    check("TensorBoard: version, id, and the steps of each start", len(first) == 3 and b"brain.Event:2" in first[0][1] and b"watched.1" in first[1][1] and b"train/loss" in first[2][1]
          and second[2][1][10:].startswith(b"\x02\x3a\x02\x08\x01") and [s for s, _ in second] == [0, 0, 2, 2, 3, 4, 5, 6] and b"validation/loss" in second[-1][1], str((first, second)))
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        reader = EventAccumulator(out)
        reader.Reload()
        check("its own reader has each step once", [e.step for e in reader.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6])
    except ImportError:
        pass
    out = os.path.join(folder, "slow")
    code, stdout, stderr = run(3, *SMALL, "--data", data, "--out", out, "--steps", "100", "--log-every", "20", "--val-every", "0", "--per-rank", "--fault", "slow", "--fault-rank", "1")
    line = json.loads(read(out, "metrics.jsonl").splitlines()[-1])
    check("the times of each rank", code == 0 and len(line["compute_s"]) == len(line["wait_s"]) == 3 and min(line["compute_s"]) > 0, str(line) + stderr)
    check("a slow rank is named", re.search(r"^rank 1 \(\S+\) is slow: [1-9.]+ x the median", stdout, re.M), stdout)


def any_number_of_steps(data):
    """Memory is taken for what was logged, not for what may be."""
    p = subprocess.Popen([PROGRAM, *SMALL, "--data", data, "--steps", "1000000000", "--log-every", "100"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    late = threading.Timer(120, p.kill)
    late.start()
    lines = [""]
    try:
        for line in p.stdout:
            lines.append(line.decode("utf-8", "replace"))
            if "/1000000000 " in lines[-1]:
                break
    finally:
        late.cancel()
        p.kill()
        p.communicate()
    check("a run of 1000000000 steps begins", "/1000000000 " in lines[-1], "".join(lines))


def sampling(folder, data):
    train(folder, "plain", 1, data)
    model = os.path.join(folder, "plain", "model")
    args = ["sample", "--model", model, "--prompt", "ring tr", "--sample-len", "120", "--seed", "3"]
    code, kept, stderr = run(0, *args)
    _, slow, _ = run(0, *args, "--no-cache")
    check("sample: with and without kept keys the same text", code == 0 and kept == slow and len(kept) > 100, kept + slow + stderr)
    _, other, _ = run(0, *args[:-1], "4")
    _, cold, _ = run(0, *args, "--temperature", "0")
    check("another seed, another temperature: other texts", len({kept, other, cold}) == 3)
    code, _, stderr = run(0, "sample", "--model", data)
    check("what is no model is refused", code == 1 and "not a model" in stderr, stderr)
    svg = os.path.join(folder, "plain", "loss.svg")
    with open(svg, encoding="utf-8") as f:
        check("a loss curve", f.read().count("<polyline") == 2)


def beginning_with_a_model(folder, data):
    """--init: the model of a directory is what training begins with, on any number of ranks."""
    first = train(folder, "first", 2, data)
    model = os.path.join(folder, "first/model")
    for ranks, args in ((1, []), (3, ["--zero", "1"])):
        out = os.path.join(folder, "second")
        code, stdout, stderr = run(ranks, *SMALL, "--data", data, "--out", out, "--overwrite", "--init", model, "--lr", "0", "--weight-decay", "0", "--steps", "1", *args)
        check("--init on %d ranks: nothing learned, the same model and validation" % ranks, code == 0 and first and sha(os.path.join(out, MODEL)) == first[1]
              and "final val_loss=%.4f" % first[0][-1]["val_loss"] in stdout, stdout + stderr)
    for args, word in ((["--layers", "3"], "--layers 3"), (["--vocab", "byte"], "--vocab"), (["--vocab-size", "3"], "--vocab-size 3")):
        code, _, stderr = run(2, *SMALL, "--data", data, "--init", model, *args)
        check("what contradicts it is refused: " + word, code == 1 and stderr.count(word) == 2, stderr)
    code, _, stderr = run(2, *SMALL, "--data", data, "--init", folder)
    check("what is no model is refused", code == 1 and "config.json" in stderr, stderr)
    out = os.path.join(folder, "second")
    run(2, "--data", data, "--out", out, "--overwrite", "--init", model,
        "--batch", "12", "--steps", "3", "--save-every", "3", "--no-sample")
    code, stdout, stderr = run(3, "--data", data, "--out", out, "--resume", "--batch", "12", "--steps", "5", "--no-sample")
    check("--resume goes on without naming --init again", code == 0 and "continuing after step 3" in stdout and "--init " + model in stdout, stdout + stderr)
    small = train(folder, "bf16", 1, data, "--save-type", "bf16")
    check("a model in bf16 is half as long", small and os.path.getsize(os.path.join(folder, "bf16", MODEL)) < 0.6 * os.path.getsize(model + "/model.safetensors"))
    code, stdout, stderr = run(0, "sample", os.path.join(folder, "bf16/model"), "--prompt", "ring \u00e9 tr", "--sample-len", "20")
    check("bytes of a prompt that it has no tokens for are named", code == 0 and "\\xa9" in stderr, stdout + stderr)


def refusals(folder, data):
    empty, short = os.path.join(folder, "empty"), os.path.join(folder, "short")
    with open(empty, "w", encoding="utf-8"):
        pass
    with open(short, "w", encoding="utf-8") as f:
        f.write("too short")
    cases = [(2, 2, ["--bogus", "1"], "--bogus"), (1, 2, ["--lr", "fast"], "--lr fast"),
             (1, 2, ["--lr"], "--lr needs a value"), (1, 2, ["--heads", "5"], "--heads 5"),
             (1, 2, ["--vocab", "word"], "--vocab word"), (1, 2, ["--steps", "0"], "--steps 0"),
             (1, 2, ["stray"], "stray"), (2, 1, ["--data", empty], "empty"), (3, 1, ["--data", short], "9 tokens"),
             (2, 1, ["--data", os.path.join(folder, "none")], "No such file"),
             (2, 1, ["--vocab-size", "9"], "--vocab-size 9 is less than the"), (1, 2, ["--batch-tokens", "100"], "--batch-tokens 100"),
             (1, 2, ["--wire", "fp4"], "--wire fp4"), (1, 2, ["--zero", "1", "--wire", "int8"], "--zero"),
             (1, 2, ["--deterministic=world", "--wire", "bf16"], "--deterministic"), (1, 2, ["--deterministic=world", "--leaves", "0"], "--leaves 0"), (1, 2, ["--resume"], "--resume needs --out"), (1, 2, ["--out", folder, "--overwrite", "--resume"], "--overwrite"),
             (1, 2, ["--out", folder, "--resume", "0"], "--resume 0"), (1, 2, ["--epochs", "1", "--steps", "3"], "--epochs"), (1, 2, ["--run-id", "a/b"], "--run-id"),
             (1, 2, ["--keep", "0"], "--keep 0"), (1, 2, ["--beta1", "1"], "--beta1 1"), (1, 2, ["--adam-eps", "0"], "--adam-eps 0"), (1, 2, ["--label-smoothing", "1"], "--label-smoothing 1"), (1, 2, ["--warmup", " 5"], "--warmup"),
             (1, 2, ["--local-steps", "2", "--wire", "int8"], "--local-steps"), (1, 2, ["--preset", "huge"], "--preset huge"), (1, 2, ["--overlap", "--stub"], "--overlap"),
             (2, 1, ["--out", os.path.join(data, "x")], "cannot write")]
    for ranks, want, args, word in cases:
        code, _, stderr = run(ranks, *SMALL, "--data", data, *args)
        mine = [line for line in stderr.splitlines() if "ddp_gpt: " in line]
        said = len(mine) == ranks and all(word in line for line in mine)
        check("refused, told by each rank once: " + " ".join(args)[-40:], code == want and said, "%d\n%s" % (code, stderr))


def run_apart(folder, args, only=None):
    """Status and stderr of each of two ranks; only: a rank and what it is given besides."""
    script = os.path.join(folder, "apart.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write('"$@" $([ "$COLL_RANK" != %d ] || echo "%s") 2> %s.$COLL_RANK\n' % (*(only or (0, "")), script)
                + 's=$?\necho $s > %s.status.$COLL_RANK\nexit $s\n' % script)
    for rank in range(2):
        for name in (".%d", ".status.%d"):
            with open(script + name % rank, "w", encoding="utf-8"):
                pass
    subprocess.run([COLLRUN, "-n", "2", "--no-prefix", "sh", script, PROGRAM, *SMALL, *args], env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    return [(read(folder, "apart.sh.status.%d" % r).strip(), read(folder, "apart.sh.%d" % r)) for r in range(2)]


def one_reason(folder, name, reason, args, only=None):
    """What one rank meets ends both, and both give it as the reason."""
    got = run_apart(folder, args, only)
    check("one reason on both ranks: " + name,
          all(code in ("1", "2") and "ddp_gpt: rank %d: " % r in err and reason in err and "different calls" not in err
              for r, (code, err) in enumerate(got)), str(got))


def ends_for_one_reason(folder, data):
    """Whatever ends a rank ends the job. None of it depends on rounding: the fault is made."""
    for rank in (0, 1):
        for args, lines in [([], 5), (["--local-steps", "4"], 5), (["--local-steps", "4", "--log-every", "100", "--val-every", "0"], 1),
                            (["--local-steps", "20", "--log-every", "100", "--val-every", "8"], 1), (["--stub", "--log-every", "3"], 3),
                            (["--zero", "2"], 5), (["--wire", "int8"], 5), (["--wire", "powersgd"], 5)]:
            out = os.path.join(folder, "fault%d%s" % (rank, "".join(args)))
            one_reason(folder, "a gradient of rank %d %s" % (rank, " ".join(args)), "step 6: the gradient is not finite",
                       ["--data", data, "--out", out, "--overwrite", "--fault", "gradient", "--fault-rank", str(rank), "--fault-step", "6", *args])
            metrics = [json.loads(line, parse_constant=lambda x: 1 / 0) for line in read(out, "metrics.jsonl").splitlines()]
            check("and the steps before are in the metrics", len(metrics) == lines, str(metrics))
        one_reason(folder, "memory of rank %d" % rank, "not enough memory", ["--data", data, "--fault", "memory", "--fault-rank", str(rank)])
        one_reason(folder, "an argument of rank %d" % rank, "unknown argument --bogus", ["--data", data], (rank, "--bogus"))
        one_reason(folder, "a batch of rank %d" % rank, "options differ", ["--data", data], (rank, "--batch 13"))
        one_reason(folder, "a trace of rank %d" % rank, "cannot write /no/such.%d" % rank, ["--data", data], (rank, "--trace /no/such"))
    one_reason(folder, "a text that is not there", "No such file", ["--data", os.path.join(folder, "none")])
    for name, args in [("model", []), ("state", ["--save-every", "5"]), ("run.json", []), ("metrics.jsonl", [])]:
        out = os.path.join(folder, "taken" + name)
        os.makedirs(os.path.join(out, name) if "." in name else out, exist_ok=True)
        if "." not in name:
            with open(os.path.join(out, name), "w", encoding="utf-8"):
                pass
        one_reason(folder, " ".join([name, "of another kind", *args]), name, ["--data", data, "--out", out, "--resume", *args])
    out = os.path.join(folder, "oldstate")
    os.makedirs(out)
    with open(os.path.join(out, "state.ckpt"), "w", encoding="utf-8"):
        pass
    one_reason(folder, "a state of an earlier version", "earlier version", ["--data", data, "--out", out, "--resume"])
    out = os.path.join(folder, "fulldisk")
    os.makedirs(out)
    os.symlink("/dev/full", os.path.join(out, "metrics.jsonl"))
    one_reason(folder, "a full disk", "metrics.jsonl", ["--data", data, "--out", out, "--resume"])
    out = os.path.join(folder, "damaged")
    os.makedirs(os.path.join(out, "state/step-00000005-1.0"))
    with open(os.path.join(out, "state/step-00000005-1.0/state.json"), "w", encoding="utf-8") as f:
        f.write("no state")
    one_reason(folder, "a damaged state", "is whole", ["--data", data, "--out", out, "--resume"])


GROUPS = [same_batch_for_any_number_of_ranks, ways_to_the_same_weights, what_is_hidden_is_told,
          same_bits_on_any_number_of_ranks, any_number_of_ranks, byte_pairs, token_files, sources, lines_of_json, documents_apart, validation_reads_each_window_once, resuming, output_directory, damaged_states, states_for_any_number_of_ranks, stopping, watching, files_of_the_first_rank,
          any_number_of_steps, sampling, beginning_with_a_model, refusals, ends_for_one_reason]


def main():
    wanted = sys.argv[3:]
    unknown = set(wanted) - {g.__name__ for g in GROUPS}
    if unknown:
        sys.exit("ddp_gpt_test: no group %s" % ", ".join(sorted(unknown)))
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs this by nohup ignores it, and so would its children
    with tempfile.TemporaryDirectory() as folder:
        data = text_of(folder)
        for group in GROUPS:
            if not wanted or group.__name__ in wanted:
                begun = time.monotonic()
                group(*[data] if group is any_number_of_steps else [folder, data])
                print("%s: %.1f s" % (group.__name__, time.monotonic() - begun), flush=True)
    code, stdout, _ = run(0, "--help")
    lines = stdout.splitlines()
    check("--help: two screens, every flag on one line", code == 0 and len(lines) <= 80 and max(map(len, lines)) <= 110 and stdout == run(0, "-h")[1], stdout)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/guide/training.md"), encoding="utf-8") as f:
        rows = [line for line in f if line.startswith("| `--")]
    flags = re.findall(r"(?:^ |,) ?--([a-z0-9-]+)", stdout, re.M)
    check("each flag is in the guide", len(flags) > 50 and not [f for f in flags if not f.startswith("fault") and not any("`--" + f in r for r in rows)],
          str([f for f in flags if not any("`--" + f in r for r in rows)]))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(failed != 0)


main()
