#!/usr/bin/env python3
"""PyTorch on a real GPU: collectives, messages and DDP of one backend, compared with Gloo on copies in host memory, and times.

usage: torch_cuda.py [--backend nccl|coll|gloo] [--ranks N] [--device cuda|cpu] [--times] [--max BYTES] [--factor N]

Ranks are processes of their own, and share the devices in turn. libnccl.so.2 of this library is tried by LD_PRELOAD with the backend
nccl; NVIDIA's takes several ranks of one device with NCCL_MULTI_RANK_GPU_ENABLE=1. Ends with 77 where torch or the device is missing.
`--device cpu` tries the program itself. The last line is `N passed, N failed, N skipped`, or a table.
"""
import argparse
import os
import statistics
import sys
import tempfile
import time
import traceback

LIMIT_S = 240


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="nccl", choices=["nccl", "coll", "gloo"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--max", type=int, default=256 << 20)
    parser.add_argument("--factor", type=int, default=4, help="from size to size, of --times")
    return parser.parse_args()


class Rank:
    """One rank: the group under test, Gloo beside it, and data that differ by rank and name."""

    def __init__(self, rank, options):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.size = torch, dist, rank, options.ranks
        self.device = torch.device("cpu")
        if options.device == "cuda":
            self.device = torch.device("cuda", rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.gloo = dist.new_group(backend="gloo")

    def data(self, count, dtype, seed=0):
        made = self.torch.Generator().manual_seed(1000 * seed + self.rank)
        return self.torch.randint(0, 9, (count,), generator=made).to(dtype)

    def equal(self, got, wanted, exact=True):
        got, wanted = got.detach().cpu(), wanted.detach().cpu()
        same = self.torch.equal(got, wanted) if exact else self.torch.allclose(got, wanted, rtol=1e-4, atol=1e-6)
        assert same, f"rank {self.rank}: got {got.flatten()[:8]}, wanted {wanted.flatten()[:8]}"

    def both(self, call, *tensors):
        """The call on the device, and by Gloo on copies."""
        there = [[t.to(self.device) for t in x] if isinstance(x, list) else x.to(self.device) for x in tensors]
        here = [[t.clone() for t in x] if isinstance(x, list) else x.clone() for x in tensors]
        call(*there, None)
        call(*here, self.gloo)
        for got, wanted in zip(there, here):
            for g, w in zip(got, wanted) if isinstance(got, list) else [(got, wanted)]:
                self.equal(g, w)


# ---- What is compared ----

def sizes(r):
    return (1, 7, 1000, 70001, 1 << 20)


def all_reduce(r):
    for dtype in (r.torch.float32, r.torch.float64, r.torch.int32, r.torch.int64, r.torch.uint8):
        for count in sizes(r):
            for op in (r.dist.ReduceOp.SUM, r.dist.ReduceOp.MAX, r.dist.ReduceOp.MIN):
                r.both(lambda x, group: r.dist.all_reduce(x, op, group=group), r.data(count, dtype))


def bfloat16(r):
    # Sums of small integers are exact.
    for count in sizes(r):
        x = r.data(count, r.torch.bfloat16).to(r.device)
        r.dist.all_reduce(x)
        y = r.data(count, r.torch.float32)
        r.dist.all_reduce(y, group=r.gloo)
        r.equal(x.float(), y)


def broadcast(r):
    for count in sizes(r):
        for root in range(r.size):
            r.both(lambda x, group: r.dist.broadcast(x, root, group=group), r.data(count, r.torch.float32, root))


def all_gather(r):
    for count in sizes(r):
        parts = [r.torch.zeros(count) for _ in range(r.size)]
        r.both(lambda out, x, group: r.dist.all_gather(out, x, group=group), parts, r.data(count, r.torch.float32))
        whole = r.torch.zeros(count * r.size, device=r.device)
        r.dist.all_gather_into_tensor(whole, r.data(count, r.torch.float32).to(r.device))
        r.dist.all_gather(parts, r.data(count, r.torch.float32), group=r.gloo)
        r.equal(whole, r.torch.cat(parts))


def reduce_scatter(r):
    for count in sizes(r):
        x = r.data(count * r.size, r.torch.float32)
        out = r.torch.zeros(count, device=r.device)
        r.dist.reduce_scatter_tensor(out, x.to(r.device))
        r.dist.all_reduce(x, group=r.gloo)
        r.equal(out, x[r.rank * count:(r.rank + 1) * count])


def all_to_all(r):
    for count in sizes(r):
        x = r.data(count * r.size, r.torch.float32)
        out = r.torch.zeros(count * r.size, device=r.device)
        r.dist.all_to_all_single(out, x.to(r.device))
        everything = [r.torch.zeros_like(x) for _ in range(r.size)]
        r.dist.all_gather(everything, x, group=r.gloo)
        r.equal(out, r.torch.cat([y[r.rank * count:(r.rank + 1) * count] for y in everything]))


def messages(r):
    for count in sizes(r):
        mine, theirs = r.data(count, r.torch.float32).to(r.device), r.torch.zeros(count, device=r.device)
        ahead, behind = (r.rank + 1) % r.size, (r.rank - 1) % r.size
        pair = [r.dist.P2POp(r.dist.isend, mine, ahead), r.dist.P2POp(r.dist.irecv, theirs, behind)]
        for work in r.dist.batch_isend_irecv(pair):
            work.wait()
        parts = [r.torch.zeros(count) for _ in range(r.size)]
        r.dist.all_gather(parts, r.data(count, r.torch.float32), group=r.gloo)
        r.equal(theirs, parts[behind])
        if r.rank < 2 <= r.size:
            r.dist.send(mine, 1) if r.rank == 0 else r.dist.recv(theirs, 0)
        if r.rank == 1:
            r.equal(theirs, parts[0])


def many_in_flight(r):
    tensors = [r.data(1 + 997 * i, r.torch.float32, i).to(r.device) for i in range(40)]
    wanted = [t.cpu() for t in tensors]
    works = [r.dist.all_reduce(t, async_op=True) for t in tensors]
    for w, t, host in zip(works, tensors, wanted):
        w.wait()
        r.dist.all_reduce(host, group=r.gloo)
        r.equal(t, host)


def ddp(r):
    from torch.nn.parallel import DistributedDataParallel

    def trained(device, group):
        r.torch.manual_seed(5)
        model = r.torch.nn.Sequential(r.torch.nn.Linear(64, 128), r.torch.nn.Tanh(), r.torch.nn.Linear(128, 10)).to(device)
        ddp_model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.02)
        step = r.torch.optim.SGD(ddp_model.parameters(), lr=0.05)
        for i in range(5):
            step.zero_grad()
            ddp_model(r.data(64 * 16, r.torch.float32, i).reshape(16, 64).to(device)).square().mean().backward()
            step.step()
        return [p.detach().cpu() for p in model.parameters()]

    for got, wanted in zip(trained(r.device, None), trained("cpu", r.gloo)):
        r.equal(got, wanted, exact=False)


CHECKS = [all_reduce, bfloat16, broadcast, all_gather, reduce_scatter, all_to_all, messages, many_in_flight, ddp]


# ---- What the backend coll does beyond that ----

def total(r, count, dtype=None):
    """The sum of data() of all ranks."""
    parts = [r.torch.zeros(count, dtype=r.torch.int64) for _ in range(r.size)]
    r.dist.all_gather(parts, r.data(count, r.torch.int64), group=r.gloo)
    return sum(parts).to(dtype or r.torch.float32)


def types(r):
    for dtype in (r.torch.float16, r.torch.bfloat16, r.torch.int8, r.torch.int16, r.torch.complex64):
        x = r.data(1000, dtype).to(r.device)
        r.dist.all_reduce(x)
        r.equal(x, total(r, 1000, dtype))
    for dtype in (r.torch.bool, r.torch.float8_e4m3fn, r.torch.float8_e5m2):
        x = r.data(1000, dtype).to(r.device)
        out = [r.torch.empty_like(x) for _ in range(r.size)]
        r.dist.all_gather(out, x)
        parts = [r.torch.zeros(1000, dtype=r.torch.int64) for _ in range(r.size)]
        r.dist.all_gather(parts, r.data(1000, r.torch.int64), group=r.gloo)
        for got, wanted in zip(out, parts):
            r.equal(got.view(r.torch.uint8), wanted.to(dtype).view(r.torch.uint8))


def strided(r):
    for step in (2, 3):
        home = r.torch.full((3000,), -1.0, device=r.device)
        view = home[::step]
        view.copy_(r.data(view.numel(), r.torch.float32))
        r.dist.all_reduce(view)
        r.equal(view, total(r, view.numel()))
        assert (home[1::step] == -1).all()
        columns = r.torch.zeros(view.numel(), r.size, device=r.device)
        r.dist.all_gather(list(columns.unbind(1)), view)
        r.equal(columns, view.unsqueeze(1).expand(-1, r.size))


def streams(r):
    """A call begins behind the stream of the caller, and what waits for it behind the call; the host waits for neither."""
    mine, other = r.torch.cuda.Stream(), r.torch.cuda.Stream()
    r.dist.all_reduce(r.torch.zeros(1, device=r.device))
    for _ in range(10):
        with r.torch.cuda.stream(mine):
            x = r.torch.zeros(100000, device=r.device)
            mine_data = r.data(100000, r.torch.float32).to(r.device)
            r.torch.cuda._sleep(100_000_000)
            x.copy_(mine_data)
            work = r.dist.all_reduce(x, async_op=True)
            assert work.wait() and not work.is_completed(), "wait() waited on the host"
            y = x * 2
        with r.torch.cuda.stream(other):
            work.wait()
            z = x * 3
        mine.synchronize()
        other.synchronize()
        assert work.is_completed() and work.is_success()
        wanted = total(r, 100000)
        r.equal(y, wanted * 2)
        r.equal(z, wanted * 3)


def futures(r):
    x = r.data(5000, r.torch.float32).to(r.device)
    doubled = r.dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    r.equal(doubled.wait(), total(r, 5000) * 2)


def dropped(r):
    """Nobody keeps the tensors of a call; memory that is made meanwhile must not be theirs."""
    out = r.torch.zeros(r.size * 100000, device=r.device)
    for i in range(50):
        r.dist.all_gather_into_tensor(out, r.data(100000, r.torch.float32, i).to(r.device), async_op=True)
        junk = [r.torch.full((100000,), -7.0, device=r.device) for _ in range(4)]
        del junk
    r.dist.barrier()
    assert (out >= 0).all()


def together(r):
    tensors = [r.data(100 + i, r.torch.float32).to(r.device) for i in range(8)]
    with r.dist._coalescing_manager(device=r.device, async_ops=True) as works:
        for t in tensors:
            r.dist.all_reduce(t)
    works.wait()
    for t in tensors:
        r.equal(t, total(r, t.numel()))


def groups(r):
    for _ in range(3):
        group = r.dist.new_group(backend="coll")
        x = r.data(1000, r.torch.float32).to(r.device)
        r.dist.all_reduce(x, group=group)
        r.equal(x, total(r, 1000))
        r.dist.destroy_process_group(group)


def refused(r):
    try:
        r.dist.all_gather_into_tensor(r.torch.zeros(2 * r.size), r.torch.zeros(2, device=r.device))
    except ValueError as error:
        assert "output is on cpu and input on cuda" in str(error), error
    else:
        raise AssertionError("host and device memory in one call were not refused")


def graph(r):
    """A captured call runs at each launch, with the data of that launch."""
    x, out = r.torch.zeros(5000, device=r.device), r.torch.zeros(5000, device=r.device)
    r.dist.all_reduce(x)
    r.torch.cuda.synchronize()
    captured = r.torch.cuda.CUDAGraph()
    with r.torch.cuda.graph(captured):
        out.copy_(x)
        r.dist.all_reduce(out)
        out.mul_(2)
    for i in range(3):
        x.copy_(r.data(5000, r.torch.float32) + i)
        captured.replay()
        r.torch.cuda.synchronize()
        r.equal(out, (total(r, 5000) + i * r.size) * 2)
    r.dist.barrier()


def mixed_messages(r):
    """One side in host memory, and receives from any source."""
    for count in (1, 70001):
        mine = r.data(count, r.torch.float32)
        ahead, behind = (r.rank + 1) % r.size, (r.rank - 1) % r.size
        parts = [r.torch.zeros(count) for _ in range(r.size)]
        r.dist.all_gather(parts, mine, group=r.gloo)
        there, here = r.torch.zeros(count, device=r.device), r.torch.zeros(count)
        works = [r.dist.isend(mine.to(r.device), ahead, tag=1), r.dist.isend(mine, ahead, tag=2),
                 r.dist.irecv(here, behind, tag=1), r.dist.irecv(there, behind, tag=2)]
        for work in works:
            work.wait()
        r.equal(here, parts[behind])
        r.equal(there, parts[behind])
        r.dist.barrier()
        if r.rank == 0:
            for _ in range(r.size - 1):
                source = r.dist.recv(there)
                r.equal(there, parts[source])
        else:
            r.dist.send(mine.to(r.device), 0)
        r.dist.barrier()


OF_COLL = [types, strided, futures, dropped, together, groups, mixed_messages]
OF_COLL_ON_CUDA = [streams, refused, graph]


def checks_of(options):
    if options.backend != "coll":
        return CHECKS
    return CHECKS + OF_COLL + (OF_COLL_ON_CUDA if options.device == "cuda" else [])


# ---- Times ----

def times(r, most, factor):
    """Medians of all_reduce in microseconds, and of Gloo on the same tensors."""
    cuda = r.device.type == "cuda"
    count = 2
    while count * 4 <= most:
        x = r.torch.ones(count, device=r.device)
        line = []
        for group in (None, r.gloo):
            took = []
            for i in range(25 if count * 4 <= 16 << 20 else 8):
                r.dist.barrier(group=r.gloo)
                if cuda:
                    r.torch.cuda.synchronize()
                began = time.perf_counter()
                r.dist.all_reduce(x, r.dist.ReduceOp.MAX, group=group)
                if cuda:
                    r.torch.cuda.synchronize()
                took.append((time.perf_counter() - began) * 1e6)
            line.append(statistics.median(took[5:]))
        if r.rank == 0:
            print(f"{count * 4:12d} B {line[0]:12.1f} us   gloo {line[1]:12.1f} us", flush=True)
        count *= factor


def rank_main(rank, options, folder, results):
    import torch.distributed as dist

    if options.backend == "coll":
        import coll.torch  # noqa: F401
    store = dist.FileStore(os.path.join(folder, "store"), options.ranks)
    dist.init_process_group(options.backend, store=store, rank=rank, world_size=options.ranks)
    r = Rank(rank, options)
    if options.times:
        times(r, options.max, options.factor)
    for check in [] if options.times else checks_of(options):
        try:
            check(r)
            results.put((rank, check.__name__, ""))
        except Exception:  # the other ranks may wait for this one
            results.put((rank, check.__name__, traceback.format_exc()))
            results.close()
            results.join_thread()
            os._exit(1)
    dist.destroy_process_group()


def main():
    options = arguments()
    try:
        import torch
    except ImportError:
        print("skipped: no torch")
        sys.exit(77)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch sees no CUDA device")
        sys.exit(77)
    spawn = torch.multiprocessing.get_context("spawn")
    results = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [spawn.Process(target=rank_main, args=(r, options, folder, results)) for r in range(options.ranks)]
        for p in ranks:
            p.start()
        until = time.monotonic() + LIMIT_S
        while any(p.is_alive() for p in ranks) and time.monotonic() < until and not any(p.exitcode for p in ranks):
            time.sleep(0.05)
        late = [r for r, p in enumerate(ranks) if p.is_alive() and time.monotonic() >= until]
        time.sleep(0.5)
        for p in ranks:
            p.kill()
            p.join()
    told = {}
    while not results.empty():
        rank, name, text = results.get()
        told.setdefault(name, {})[rank] = text
    broken = bool(late) or any(p.exitcode for p in ranks)
    if late:
        print(f"ranks {late} had not ended after {LIMIT_S} s")
    if options.times:
        sys.exit(broken)
    checks = checks_of(options)
    passed = [c.__name__ for c in checks if set(told.get(c.__name__, {}).values()) == {""} and len(told[c.__name__]) == options.ranks]
    for check in checks:
        print("ok   " if check.__name__ in passed else "FAIL ", check.__name__, *set(told.get(check.__name__, {}).values()))
    print(f"{len(passed)} passed, {len(checks) - len(passed)} failed, 0 skipped")
    sys.exit(broken or len(passed) < len(checks))


if __name__ == "__main__":
    main()
