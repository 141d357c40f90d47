#!/usr/bin/env python3
"""Collectives of ranks on several hosts, a few on each, beside bare streams over the same links and beside Open MPI.

Hosts are network namespaces (network.py), joined by links that tbf shapes. Blocks take turns, A B C A B C:
bare streams on all links at once, as many bytes as the links need at least for the collective (bounds.py); this library; each
peer; all with the same congestion control. The ratio to the floor is its time / ours, block by block, the median of the blocks;
the ratio to a peer is the peer's time / ours. Between hosts that nothing shapes there is no floor. The load is a count: what
the busiest direction of a link carried for us, over the least it has to.

Exit status 1: a wrong result, a failure, or a ratio below what --must says; 77: no right to make network namespaces.
See docs/guide/peers.md.
"""
import argparse
import math
import os
import random
import shlex
import subprocess
import sys

import bounds
import cells as cells_of
import network
import ranks as ranks_of
import run as run_of

HERE = os.path.dirname(os.path.abspath(__file__))
PAYLOAD = 0.956  # of the rate that tbf lets through, which counts headers
BARE_MUST = 0.95  # of that: a link whose bare stream carries less is not judged
BLOCK_S = {True: 0.5, False: 0.01}  # shaped or not
PORT = 20000
ADAPT = ["coll_han_priority", "100", "coll_adapt_priority", "1", "coll_sm_priority", "0"]
for _kind in ("bcast", "reduce", "allreduce"):
    # Segments of 512 KiB: the fastest of 64 KiB to 2 MiB, 2026-11-23, 2 hosts of 4 ranks at 1 Gb/s.
    ADAPT += ["coll_han_%s_up_module" % _kind, "1", "coll_han_%s_segsize" % _kind, str(512 << 10)]
PEERS = {"openmpi": [], "han": ["coll_han_priority", "100"], "adapt": ADAPT}
TITLES = {"stream": "bare streams", "ours": "ours", "before": "the other build", "openmpi": "Open MPI",
          "han": "Open MPI with HAN", "adapt": "Open MPI with HAN and adapt"}
SHORT = {"stream": "floor", "ours": "ours", "before": "before", "openmpi": "OMPI", "han": "HAN", "adapt": "HAN+adapt"}

COLL = "--coll all_reduce,broadcast,reduce,all_gather,reduce_scatter"
MAPS = "--map block,cyclic,random:1"
# What is asked of the choice of paths, part by part: each line is one network.
TABLE = {
    "levels": ["--hosts %s --mbit %s %s %s --bytes 4M,16M --must floor:0.93" % (hosts, mbit, COLL, MAPS) for hosts, mbit in (
        ("4,4", "1000"), ("2,2", "1000"), ("2,2,2,2", "500 --inward"), ("3,3,3", "500 --inward"))],
    "uneven": ["--hosts %s --mbit 500 --inward %s %s --bytes 4M,16M --must floor:0.90" % (hosts, COLL, MAPS)
               for hosts in ("1,3", "2,4", "1,2,4")],
    "links": ["--hosts 4,4 --rails 2 --coll all_reduce,broadcast --bytes 16M --must floor:0.90",  # 1.8 times one
              "--hosts 4,4 --nic-mbit 1000,250 --told --block-ms 1500 --coll all_reduce,broadcast --bytes 16M --must floor:0.90",
              "--hosts 1,1,1,1 --host-mbit 1000,1000,1000,500 --inward --told --block-ms 1500 --coll all_reduce --bytes 16M --must floor:0.85",
              "--hosts 2,2,2,2 --host-mbit 500,500,500,250 --inward --told --block-ms 1500 --coll all_reduce --bytes 16M --must floor:0.85",
              "--hosts 1,1,1,1 --sites 2+2 --mbit 1000 --uplink-mbit 500 --inward --told --block-ms 1500 --coll all_reduce,broadcast --bytes 16M --must floor:0.90"],
    "peers": ["--hosts 4,4 --mbit 1000 --coll all_reduce --bytes 1M,4M,16M --peers openmpi,adapt --must floor:0.93,openmpi:1.5,adapt:0.97"],
    "latency": ["--hosts %s --mbit 0 --coll all_reduce,broadcast,barrier --bytes 8,64,512,4K --pin --peers openmpi,han,adapt --blocks 27 "
                "--must before:0.95,han:0.95,adapt:0.95" % hosts for hosts in ("1,1", "2,2")],
    # One rank for each host: what was the whole of this program once.
    "single": ["--hosts %s --mbit %d --coll all_reduce --bytes 4M,16M,64M --must floor:0.93" % (",".join("1" * n), mbit)
               for mbit, most in ((1000, 8), (2500, 6), (5000, 3)) for n in range(2, most + 1)],
}


class Bad(Exception):
    """Arguments that contradict each other."""


# ---- the case ----------------------------------------------------------------------------------------------------------


def hosts_of(order, ranks):
    """The host of each rank, numbered host by host (block), round the hosts (cyclic), or at random."""
    block = [h for h, p in enumerate(ranks) for _ in range(p)]
    if order == "block":
        return block
    if order == "cyclic":
        return [h for turn in range(max(ranks)) for h, p in enumerate(ranks) if turn < p]
    kind, _, seed = order.partition(":")
    if kind != "random" or not seed.isdigit():
        raise Bad("no numbering '%s'; there are block, cyclic and random:SEED" % order)
    random.Random(int(seed)).shuffle(block)
    return block


def links_of(args):
    n = len(args.hosts)
    nics = args.nic_mbit or [args.mbit] * args.rails
    if args.rails > 1 and args.nic_mbit:
        raise Bad("--rails or --nic-mbit, not both")
    if args.host_mbit and len(args.host_mbit) != n:
        raise Bad("--host-mbit has %d rates, --hosts %d hosts" % (len(args.host_mbit), n))
    if args.host_mbit and len(nics) > 1:
        raise Bad("--host-mbit is for one interface on each host")
    each = [[m] for m in args.host_mbit] if args.host_mbit else [list(nics) for _ in range(n)]
    if min(min(e) for e in each) <= 0 and each != [[0]] * n:
        raise Bad("a rate of 0, which shapes nothing, is for --mbit with one interface on each host")
    if not args.sites:
        return bounds.Links(each)
    if sum(args.sites) != n or len(args.sites) < 2 or not args.uplink_mbit or len(nics) > 1:
        raise Bad("--sites are two or more with all %d hosts, one interface on each, and --uplink-mbit says how they are joined" % n)
    return bounds.Links(each, [s for s, k in enumerate(args.sites) for _ in range(k)], args.uplink_mbit)


def title(args):
    text = "+".join(str(p) for p in args.hosts)
    if len(set(args.hosts)) == 1:
        text = "%d x %d" % (len(args.hosts), args.hosts[0])
    if args.sites:
        rate = "%d Mb/s, sites %s at %d" % (args.mbit, "+".join(str(s) for s in args.sites), args.uplink_mbit)
    elif args.nic_mbit or args.host_mbit:
        rate = "+".join(str(m) for m in args.nic_mbit) + " Mb/s" if args.nic_mbit else "hosts of %s Mb/s" % ",".join(
            str(m) for m in args.host_mbit)
    else:
        rate = "not shaped" if not args.mbit else "%s%d Mb/s" % ("%d x " % args.rails if args.rails > 1 else "", args.mbit)
    return "%s ranks, %s%s%s" % (text, rate, ", inward too" if args.inward else "", ", told" if args.told else "")


def told(net, host):
    """What the library is told of this host's links."""
    env = {"COLL_LINK_RATES": ",".join("e%d:%d" % (k, rate) for k, rate in enumerate(net.links.nics[host]))}
    if net.links.sites:
        env.update(COLL_SITE="site%d" % net.links.site_of(host), COLL_SITE_RATE=str(net.links.uplink))
    return env


# ---- ranks on hosts ----------------------------------------------------------------------------------------------------


class Case:
    """What ranks.py and the commands below need of it: one network, one numbering."""

    def __init__(self, args, net, order):
        self.build, self.transport, self.python, self.cc = os.path.abspath(args.build), "shm", sys.executable, args.cc
        self.before = os.path.abspath(args.before) if args.before else None
        self.unpinned, self.mca = not args.pin, args.mca
        self.told, self.net = args.told, net
        self.host_of = hosts_of(order, args.hosts)
        self.cores = ranks_of.cores()
        self.shaped = shaped(args)
        self.crowded = len(self.host_of) > self.cores
        self.port = PORT


class RanksApart(ranks_of.Ranks):
    """Ranks of one library, each on its host. Launchers start on the host of rank 0."""

    def spawn(self, line, env, rank):
        case = self.ctx
        host = rank if self.name == "stream" else case.host_of[rank]
        env = dict(env)
        if self.name in ("ours", "before"):
            env["COLL_RANK"] = str(rank)
            env.update(told(case.net, host) if case.told else {})
        super().spawn(case.net.inside(host) + line, env, rank)


def command_ours(which):
    def command(case, ranks):
        case.port += 1
        env = {"COLL_SIZE": str(ranks), "COLL_ROOT": "%s:%d" % (case.net.address(0, case.host_of[0]), case.port),
               "COLL_JOB_KEY": os.urandom(16).hex(), "COLL_TCP_CONGESTION": case.cc}
        if case.crowded and not case.shaped:  # a host's share of the cores of this machine: all libraries yield
            env["COLL_TEST_CORES"] = str(max(1, case.cores // case.net.links.hosts))
        preload = ["env", "LD_PRELOAD=" + case.before] if which == "before" else []
        return preload + [case.build + "/bench/peers/driver_ours"], env
    return command


def command_stream(case, hosts):
    ring, most = bounds.streams(case.net.links)
    case.streams = [";".join("%s,%s,%d,%d,%d" % (case.net.address(k, h), case.net.address(k, (h + 1) % hosts), out, in_, most)
                             for k, (out, in_) in enumerate(rails)) for h, rails in enumerate(ring)]
    return ["sh", "-c", 'COLL_BENCH_STREAM=$(echo "$COLL_BENCH_STREAMS" | sed -n $((COLL_BENCH_RANK + 1))p) exec "$0"',
            case.build + "/bench/peers/driver_stream"], {"COLL_BENCH_STREAMS": "\n".join(case.streams), "COLL_BENCH_SIZE": str(hosts)}


def command_mpi(name):
    def command(case, ranks):
        mpirun = ranks_of.which_mpirun("openmpi")
        if not mpirun:
            raise ranks_of.Missing("not found")
        # One line for each rank, in its order; and a remote shell that goes to the namespace of that name.
        hosts, agent = os.environ["TMPDIR"] + "/hosts", os.environ["TMPDIR"] + "/agent"
        with open(hosts, "w") as f:
            f.write("".join(case.net.name(h) + "\n" for h in case.host_of))
        with open(agent, "w") as f:
            f.write('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        os.chmod(agent, 0o700)
        networks = ",".join(case.net.networks())
        mca = ["rmaps", "seq", "plm_rsh_agent", agent, "pml", "ob1", "btl", "vader,tcp,self", "btl_tcp_if_include", networks,
               "oob_tcp_if_include", networks, "mpi_yield_when_idle", "1" if case.crowded else "0", *PEERS[name], *case.mca]
        line = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--hostfile", hosts, "-np", str(ranks)]
        for key, value in zip(mca[::2], mca[1::2]):
            line += ["--mca", key, value]
        for variable in ("COLL_BENCH_SOCKET", "COLL_BENCH_SHARED", "COLL_BENCH_UNPINNED", "TMPDIR"):
            line += ["-x", variable] if variable != "COLL_BENCH_UNPINNED" or case.unpinned else []
        return line + [case.build + "/bench/peers/driver_openmpi"], {}
    return command


ranks_of.KINDS.update(ours=(command_ours("ours"), False, "plain"), before=(command_ours("before"), False, "plain"),
                      stream=(command_stream, False, "plain"),
                      **{name: (command_mpi(name), True, "plain") for name in PEERS})
ranks_of.TITLES.update(TITLES)


# ---- blocks ------------------------------------------------------------------------------------------------------------


def start(args, net, order, libs):
    """Ours and the floor must start; a peer that is missing is named."""
    case = Case(args, net, order)
    names = (["stream"] if shaped(args) else []) + ["ours"] + (["before"] if args.before else []) + args.peers
    for name in names:
        try:
            libs.append(RanksApart(name, case, len(args.hosts) if name == "stream" else len(case.host_of)))
        except ranks_of.Missing as e:
            if name not in PEERS:
                raise
            print("%s: %s: left out" % (TITLES[name], e), file=sys.stderr)


def shaped(args):
    return bool(args.mbit or args.nic_mbit or args.host_mbit)


def prepare(libs, kind, size, floor_bytes):
    """The libraries that have it."""
    ready = []
    for lib in libs:
        if lib.name == "stream":
            why = lib.prepare("all_reduce", floor_bytes, "out")
        else:
            why = lib.prepare(kind, size, "in" if kind == "broadcast" else "out")
        if not why:
            ready.append(lib)
        elif lib.name in ("stream", "ours"):
            raise lib.failed(why)
    return ready


class Turn:
    """A library's blocks of one cell."""

    def __init__(self, lib, how, calls, warm):
        self.lib, self.how, self.calls, self.warm, self.times = lib, how, calls, warm, []

    def block(self):
        self.times.append(self.lib.block(self.how, self.calls, self.warm))


class StreamTurn(Turn):
    """The floor: calls back to back are one stream."""

    def block(self):
        if self.how == "back":
            self.times.append(self.lib.block(self.how, 1, 0) / self.calls)
        else:
            super().block()


class CountedTurn(Turn):
    """Ours: what the links carry is counted."""

    def __init__(self, net, bound, *rest):
        super().__init__(*rest)
        self.net, self.bound, self.load = net, bound, 0

    def block(self):
        before = self.net.moved()
        super().block()
        self.load = max(self.load, self.net.busiest_s(before, self.net.moved()) / (self.calls + self.warm) / self.bound)


def turns_unshaped(args, libs, kind, size):
    how, seconds = run_of.how(kind, size, sum(args.hosts), ranks_of.cores()), (args.block_ms or 1e3 * BLOCK_S[False]) * 1e-3
    calls = [run_of.calibrate(lib, how, seconds) for lib in libs]
    return [Turn(lib, how, n, max(1, n // 10)) for lib, n in zip(libs, calls)]


def turns_shaped(args, net, libs, bound, calls):
    return [StreamTurn(lib, args.how, calls, 1) if lib.name == "stream" else
            CountedTurn(net, bound, lib, args.how, calls, 1) if lib.name == "ours" else
            Turn(lib, args.how, calls, 1) for lib in libs]


def measure(args, net, libs, kind, size):
    """({library: seconds of a call in each block}, least seconds by the rates or None, our load)"""
    bound, calls, floor_bytes = None, 0, 0
    if shaped(args):
        bound = bounds.least_s(kind, size, args.hosts, net.links)
        calls = max(2, math.ceil((args.block_ms or 1e3 * BLOCK_S[True]) * 1e-3 / bound))
        floor_bytes = bounds.stream_bytes(bound * (calls if args.how == "back" else 1), bounds.streams(net.links)[1])
    ready = prepare(libs, kind, size, floor_bytes)
    for lib in ready:
        if args.check and lib.name != "stream" and kind != "barrier":
            lib.check(kind in ("all_reduce", "broadcast", "all_gather"))
    turns = turns_shaped(args, net, ready, bound, calls) if bound else turns_unshaped(args, ready, kind, size)
    for _ in range(args.blocks):
        for turn in turns:
            turn.block()
    for lib in ready:
        lib.prepare("barrier", 0, "out")  # gives the memory back
    return {t.lib.name: t.times for t in turns}, bound, max(getattr(t, "load", 0) for t in turns)


def time_text(seconds):
    return "%9.2f us" % (1e6 * seconds) if seconds < 1e-3 else "%8.2f ms" % (1e3 * seconds)


def tell(args, order, kind, size, times, bound, load):
    """One line; whether a ratio is below what must be."""
    middle = {name: cells_of.interval(t)[0] for name, t in times.items()}
    line = "%-9s %-14s %8s" % (order, kind, cells_of.size_text(size) if kind != "barrier" else "")
    judged, below = True, []
    if bound:
        reach = bound / middle["stream"] / PAYLOAD
        judged = reach >= BARE_MUST
        line += "  floor %s (%.3f of the rate)" % (time_text(middle["stream"]), reach)
    line += "  ours %s" % time_text(middle["ours"]) + ("  load %.2f" % load if bound else "")
    for name in times:
        if name == "ours":
            continue
        ratio = cells_of.interval([a / b for a, b in zip(times[name], times["ours"])])
        must = args.must.get("floor" if name == "stream" else name)
        line += "  %s/ours %.3f (%.3f .. %.3f)" % (SHORT[name], *ratio)
        if must and ratio[0] < must and (judged or name != "stream"):
            below.append("%s below %g" % (SHORT[name], must))
    print(line + ("" if judged else "  floor not judged: bare streams miss the rate") + "".join("  " + b for b in below), flush=True)
    return bool(below)


def one_size(kind, size, n):
    """Whole blocks of whole floats."""
    return size if kind in ("all_reduce", "broadcast", "reduce", "barrier") else size // (4 * n) * 4 * n


def one_case(args):
    links = links_of(args)
    net = network.Network(links, args.cc, args.inward)
    below = 0
    print("# %s, %s, load %.1f" % (title(args), args.cc, os.getloadavg()[0]), flush=True)
    for order in args.map:
        libs = []
        try:
            start(args, net, order, libs)
            for kind in args.coll:
                for size in args.bytes if kind != "barrier" else [0]:
                    size = one_size(kind, size, sum(args.hosts))
                    below += tell(args, order, kind, size, *measure(args, net, libs, kind, size))
        finally:
            for lib in libs:
                lib.close()
    return 1 if below else 0


# ---- arguments ---------------------------------------------------------------------------------------------------------


def numbers(separator):
    def parse(text):
        values = [int(t) for t in text.split(separator)]
        if min(values) < 0:
            raise ValueError(text)
        return values
    parse.__name__ = "list of numbers"
    return parse


def known(what, names):
    def parse(text):
        asked = [t for t in text.split(",") if t and t != "none"]
        for t in asked:
            if t not in names:
                raise argparse.ArgumentTypeError("no %s '%s'; there are %s" % (what, t, ", ".join(names)))
        return asked
    return parse


def musts(text):
    return {name: float(value) for name, _, value in (part.partition(":") for part in text.split(","))}


def options(argv):
    p = argparse.ArgumentParser(prog="run bench layouts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=run_of.ROOT + "/build/release", help="build directory")
    p.add_argument("--table", nargs="?", const=",".join(TABLE), metavar="PARTS",
                   help="all that is asked, or these parts of it: " + ", ".join(TABLE) + "; other arguments are added to each case")
    p.add_argument("--hosts", type=numbers(","), default=[4, 4], help="ranks of each host (default: 4,4)")
    p.add_argument("--mbit", type=int, default=1000, help="rate of every interface, each way, Mb/s (default: 1000); 0: not shaped")
    p.add_argument("--rails", type=int, default=1, help="interfaces of each host, all of this rate")
    p.add_argument("--nic-mbit", type=numbers(","), help="instead: interfaces of these rates on each host")
    p.add_argument("--host-mbit", type=numbers(","), help="instead: a rate for each host")
    p.add_argument("--sites", type=numbers("+"), help="so many hosts behind each uplink: 2+2")
    p.add_argument("--uplink-mbit", type=int, help="its rate, each way")
    p.add_argument("--inward", action="store_true",
                   help="shape what enters a host, too (several may send to it at once); costs processor time at several Gb/s in all")
    p.add_argument("--told", action="store_true", help="tell the library the rates and sites")
    p.add_argument("--coll", type=known("collective", (*bounds.KINDS, "barrier")), default=list(bounds.KINDS), help="by commas")
    p.add_argument("--bytes", type=run_of.sizes, default=[4 << 20, 16 << 20], help="of the whole vector, by commas: 4M,16M")
    p.add_argument("--map", type=lambda t: t.split(","), default=["block"], help="numbering of ranks: block, cyclic, random:SEED, by commas")
    p.add_argument("--peers", type=known("peer", PEERS), default=[], help="by commas: " + ", ".join(PEERS))
    p.add_argument("--mca", type=str.split, default=[], metavar="'NAME VALUE ...'", help="more parameters of Open MPI")
    p.add_argument("--before", metavar="OLD.so", help="another build of this library, measured beside this one")
    p.add_argument("--blocks", type=run_of.at_least(1), default=5)
    p.add_argument("--block-ms", type=run_of.at_least(0.001, float), help="time of a block of the floor (default: 500; not shaped: 10)")
    p.add_argument("--how", choices=("back", "each"), default="back",
                   help="shaped links: calls back to back, or a meeting before each call, outside its time")
    p.add_argument("--check", action="store_true", help="check every element of every result, not only samples")
    p.add_argument("--pin", action="store_true", help="rank r on core r mod cores")
    p.add_argument("--cc", default="cubic", help="congestion control of everyone")
    p.add_argument("--must", type=musts, default={}, help="least ratios: floor:0.93,openmpi:1.5,adapt:0.97,before:0.95")
    args = p.parse_args(argv)
    try:
        if min(args.hosts) < 1 or len(args.hosts) < 2 or args.mbit < 0 or args.rails < 1:
            raise Bad("--hosts needs two hosts or more with a rank or more on each, --rails one or more, --mbit no less than 0")
        links_of(args)
        for order in args.map:
            hosts_of(order, args.hosts)
        if args.before and not os.path.isfile(args.before):
            raise Bad("--before %s is no file" % args.before)
    except Bad as e:
        p.error(str(e))
    return args


def table(args, argv):
    """Each line by a run of its own; one that fails or is below leaves the others be."""
    status = 0
    rest = run_of.without(argv, "--table")
    for part in args.table.split(","):
        if part not in TABLE:
            raise SystemExit("no part '%s'; there are %s" % (part, ", ".join(TABLE)))
        for line in TABLE[part]:
            one = subprocess.run([sys.executable, os.path.abspath(__file__), *shlex.split(line), *rest]).returncode
            if one == 77:
                return one
            status = one or status
    return status


def main(argv):
    args = options(argv)
    if args.table:
        return table(args, argv)
    if not os.environ.get(network.INSIDE) and not network.allowed():
        print("layouts: %s: skipped" % (network.missing() or "not allowed to make network namespaces"))
        return 77
    network.go_apart()
    try:
        return one_case(args)
    except (ranks_of.Failed, network.Refused) as e:
        print("failed: %s" % e, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
