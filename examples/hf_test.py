#!/usr/bin/env python3
"""Models of ddp_gpt and of transformers, read by each other: python3 hf_test.py COLLRUN DDP_GPT GPT_LOGITS [GROUP...]

Without transformers, safetensors and torch it ends with 77. Logits of 20 prompts may differ by 1e-4.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, pipeline
except ImportError as why:
    print("skipped: %s" % why)
    sys.exit(77)

COLLRUN, PROGRAM, LOGITS = sys.argv[1:4]
SHAPES = [dict(vocab_size=65, n_positions=64, n_layer=4, n_head=4, n_embd=128), dict(vocab_size=257, n_positions=33, n_layer=2, n_head=3, n_embd=48),
          dict(vocab_size=1000, n_positions=96, n_layer=3, n_head=8, n_embd=64)]
passed = failed = 0


def check(what, good, detail=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok    " if good else "FAIL  ") + what + ("" if good else "\n" + str(detail)), flush=True)


def prompts(model):
    generator = random.Random(3)
    return [[generator.randrange(model.config.vocab_size) for _ in range(generator.randint(1, model.config.n_positions))] for _ in range(20)]


def theirs(model):
    with torch.no_grad():
        return torch.stack([model.float()(torch.tensor([p])).logits[0, -1] for p in prompts(model)])


def ours(folder, model):
    data = b"".join(struct.pack("<I%dI" % len(p), len(p), *p) for p in prompts(model))
    p = subprocess.run([LOGITS, folder], input=data, capture_output=True, timeout=300, check=False)
    if p.returncode:
        return p.stderr.decode()
    return torch.frombuffer(bytearray(p.stdout), dtype=torch.float32).reshape(20, -1)


def close(a, b):
    return isinstance(a, torch.Tensor) and a.shape == b.shape and float((a - b).abs().max()) <= 1e-4


def theirs_read_by_us(folder):
    for i, shape in enumerate(SHAPES):
        torch.manual_seed(i)
        model = GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, initializer_range=0.3)).eval()
        for name, dtype, shard in (("whole", None, "5GB"), ("sharded", None, "100KB"), ("F16", torch.float16, "5GB"), ("BF16", torch.bfloat16, "5GB")):
            at = os.path.join(folder, "theirs%d%s" % (i, name))
            kept = model if dtype is None else GPT2LMHeadModel.from_pretrained(os.path.join(folder, "theirs%dwhole" % i), dtype=dtype)
            kept.save_pretrained(at, max_shard_size=shard)
            want = theirs(GPT2LMHeadModel.from_pretrained(at, dtype=torch.float32).eval())
            got = ours(at, model)
            check("%s of %s: our logits" % (name, shape), close(got, want), got)
            check("it has shards", name != "sharded" or os.path.exists(os.path.join(at, "model.safetensors.index.json")))
        back = os.path.join(folder, "back%d" % i)
        p = subprocess.run([LOGITS, os.path.join(folder, "theirs%dwhole" % i), back], capture_output=True, timeout=300, check=False)
        again = AutoModelForCausalLM.from_pretrained(back).eval()
        check("%s: written by us, their logits" % (shape,), p.returncode == 0 and close(theirs(again), theirs(model)), p.stderr)
    at = os.path.join(folder, "theirs0whole")
    tensors = load_file(os.path.join(at, "model.safetensors"))
    for name, change in (("without the prefix", lambda t: {k.removeprefix("transformer."): v for k, v in t.items()}),
                         ("with buffers and a head", lambda t: {**t, "lm_head.weight": t["transformer.wte.weight"].clone(),
                                                                "transformer.h.0.attn.bias": torch.ones(1, 1, 8, 8)})):
        save_file(change(tensors), os.path.join(at, "model.safetensors"), {"format": "pt"})
        check("names " + name, close(ours(at, GPT2LMHeadModel.from_pretrained(at).eval()), theirs(GPT2LMHeadModel.from_pretrained(at).eval())))
    save_file({**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1}, os.path.join(at, "model.safetensors"), {"format": "pt"})
    p = subprocess.run([LOGITS, at], input=b"", capture_output=True, timeout=300, check=False)
    check("a head of its own is refused", p.returncode == 1 and b"not tied" in p.stderr, p)


def ours_read_by_them(folder):
    text = "The ring sends, the tree sums; grün is a colour.\n" * 120
    path = os.path.join(folder, "text")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    for vocab in ("char", "byte"):
        out = os.path.join(folder, "run" + vocab)
        p = subprocess.run([COLLRUN, "-n", "2", "--no-prefix", PROGRAM, "--data", path, "--layers", "2", "--width", "32", "--heads", "2", "--context", "32", "--batch", "12",
                            "--steps", "60", "--val-windows", "0", "--vocab", vocab, "--no-sample", "--out", out],
                           env=dict(os.environ, OPENBLAS_NUM_THREADS="1"), stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
        model = AutoModelForCausalLM.from_pretrained(os.path.join(out, "model")).eval()
        tokenizer = AutoTokenizer.from_pretrained(os.path.join(out, "model"))
        raw = text.encode()
        ids = tokenizer.encode(text)
        check("%s: their tokens give our text back, a token a byte" % vocab, len(ids) == len(raw) and tokenizer.decode(ids) == text
              and model.config.vocab_size == len(set(raw) if vocab == "char" else range(256)), p.stderr)
        # The windows that ddp_gpt validates: the last tenth, side by side.
        val, losses = ids[len(ids) - len(ids) // 10:], []
        for w in range((len(val) - 1) // 32):
            window = torch.tensor([val[w * 32:w * 32 + 33]])
            with torch.no_grad():
                logits = model(window[:, :-1]).logits
            losses.append(float(torch.nn.functional.cross_entropy(logits[0], window[0, 1:])))
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            printed = [json.loads(line)["val_loss"] for line in f if "val_loss" in line][-1]
        check("%s: the validation loss that they compute is the printed one" % vocab, abs(sum(losses) / len(losses) - printed) < 1e-4, (losses, printed))
        said = pipeline("text-generation", model=os.path.join(out, "model"))("The ring", max_new_tokens=12, do_sample=False)[0]["generated_text"]
        sample = subprocess.run([PROGRAM, "sample", os.path.join(out, "model"), "--prompt", "The ring", "--temperature", "0", "--sample-len", "12"],
                                capture_output=True, timeout=300, check=False).stdout.decode("utf-8", "replace")
        check("%s: a pipeline writes what our sample writes" % vocab, said.strip() in sample and len(said) >= 18, (said, sample))
        check("%s: our logits are theirs" % vocab, close(ours(os.path.join(out, "model"), model), theirs(model)))


with tempfile.TemporaryDirectory() as tmp:
    for group in (theirs_read_by_us, ours_read_by_them):
        if not sys.argv[4:] or group.__name__ in sys.argv[4:]:
            group(tmp)
print("%d passed, %d failed, 0 skipped" % (passed, failed))
sys.exit(failed != 0)
