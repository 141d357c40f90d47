#!/usr/bin/env python3
"""Training steps of the shape of GPT-2 (124 M): ours and PyTorch's, taking turns.

usage: gpt_peers.py BUILD-DIRECTORY [--python PYTHON-WITH-TORCH] [--blocks N] [--batch N] [--len N]

Rows: ours on one process of two threads; PyTorch eager and compiled with two threads; ours on two ranks of one
thread. Each block is one step of each, in turns; the median of the ratios of a block is printed with its quartiles.
Without torch those rows say 'not measured'. A step is forward, backward, clipping and AdamW, in f32.
"""
import argparse
import os
import statistics
import subprocess
import sys

TORCH = r'''
import sys, time, math, torch
import torch.nn as nn, torch.nn.functional as F
compiled, batch, length, threads = sys.argv[1] == "compiled", *map(int, sys.argv[2:5])
torch.set_num_threads(threads)
torch.manual_seed(1)
C, H, L, V = 768, 12, 12, 50257
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj, self.up, self.down = nn.Linear(C, 3 * C), nn.Linear(C, C), nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, H, C // H).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, C)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.ln = nn.Embedding(V, C), nn.Embedding(length, C), nn.LayerNorm(C)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for b in self.blocks:
            h = b(h)
        return F.cross_entropy((self.ln(h) @ self.wte.weight.T).view(-1, V), y.view(-1))
model = GPT()
try:
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
except Exception:
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
run = torch.compile(model) if compiled else model
x = torch.randint(V, (batch, length)); y = torch.randint(V, (batch, length))
for _ in sys.stdin:
    start = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    run(x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print("%.6f" % (time.perf_counter() - start), flush=True)
'''


class Peer:
    def __init__(self, name, command, env=None):
        self.name = name
        self.times = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env=dict(os.environ, **(env or {})))

    def step(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (OSError, ValueError):
            return None

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.wait(timeout=60)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("build")
    parse.add_argument("--python", default=sys.executable)
    parse.add_argument("--blocks", type=int, default=9)
    parse.add_argument("--batch", type=int, default=4)
    parse.add_argument("--len", type=int, default=64)
    args = parse.parse_args()
    bench = [args.build + "/bench/gpt_bench", "steps", "--len", str(args.len)]
    torch = [args.python, "-c", TORCH]
    sizes = [str(args.batch), str(args.len), "2"]
    peers = [Peer("ours, 1 process x 2 threads", [*bench, "--batch", str(args.batch), "--threads", "2"]),
             Peer("PyTorch eager, 2 threads", [*torch, "eager", *sizes]),
             Peer("PyTorch compiled, 2 threads", [*torch, "compiled", *sizes]),
             Peer("ours, 2 ranks x 1 thread", [args.build + "/tools/collrun", "-n", "2", "--no-prefix", *bench,
                                               "--batch", str(max(1, args.batch // 2))])]
    alive = []
    for peer in peers:
        # The first steps compile, touch memory and warm up.
        if all(peer.step() is not None for _ in range(3)):
            alive.append(peer)
    for _ in range(args.blocks):
        for peer in alive:
            peer.times.append(peer.step())
    print("GPT-2 124M, batch %d x %d tokens, f32; %d blocks; load %s" % (args.batch, args.len, args.blocks,
                                                                     open("/proc/loadavg").read().split()[0]))
    ours = peers[0].times
    for peer in peers:
        if peer not in alive or None in peer.times:
            print("%-30s not measured" % peer.name)
            continue
        ratios = sorted(b / a for a, b in zip(ours, peer.times))
        print("%-30s %8.1f ms   time / ours: %.2f (%.2f to %.2f)" % (
            peer.name, 1e3 * statistics.median(peer.times), statistics.median(ratios), ratios[len(ratios) // 4],
            ratios[(3 * len(ratios)) // 4]))
    for peer in peers:
        peer.close()


main()
