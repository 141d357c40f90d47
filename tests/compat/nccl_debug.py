#!/usr/bin/env python3
"""What the variables of NCCL do in a program of NCCL: the lines of NCCL_DEBUG, and the names that they give.
usage: nccl_debug.py BUILD"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multi"))
from job import Report

BUILD = os.path.abspath(sys.argv[1])
LINE = r"^\S+:\d+:\d+ NCCL INFO "


def run(layout=("processes", "2"), **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "COLL_"))}
    p = subprocess.run([f"{BUILD}/tests/compat/nccl_collectives", *layout], env={**env, **settings}, capture_output=True,
                       text=True, timeout=240)
    return p.returncode, p.stdout, p.stderr


def lacks(text, *patterns):
    return [f"no line {p!r} in {text[:3000]}" for p in patterns if not re.search(p, text, re.M)]


def main():
    report = Report()
    file = os.path.realpath(f"{BUILD}/src/compat/nccl/libnccl.so.2")
    banner = rf"^NCCL version 2\.28\.9, by libcoll \d+\.\d+\.\d+ \(\S+\) in \S*{re.escape(os.path.basename(file))[:11]}"
    status, out, err = run()
    report.case("without NCCL_DEBUG nothing is said", [] if status == 0 and "NCCL" not in out + err else [out + err])
    status, out, err = run(NCCL_DEBUG="version", COLL_NCCL_VERSION="22809")
    report.case("VERSION", lacks(out, banner) + ([] if status == 0 and "INFO" not in out else [out]))
    status, out, err = run(NCCL_DEBUG="INFO", NCCL_ALGO="Ring", NCCL_SOCKET_IFNAME="^docker,veth", COLL_TRANSPORTS="tcp")
    report.case("INFO", lacks(out, banner, LINE + r"comm 0x\w+ rank 0 nranks 2 cudaDev -?\d+ - Init START", LINE + "Using network Socket",
                              LINE + "Channel 00 : 1 -> 0 via NET/Socket", LINE + r"comm 0x\w+ rank 1 nranks 2 .* - Init COMPLETE",
                              LINE + r"comm 0x\w+ .* - Destroy COMPLETE", LINE + "NCCL_ALGO=Ring: has no effect here") + ([] if status == 0 else [err]))
    status, out, err = run(NCCL_DEBUG="INFO", COLL_TRANSPORTS="shm")
    report.case("one host", lacks(out, "Channel 00 : 0 -> 1 via SHM") + (["a network"] if "Using network" in out else []))
    with tempfile.TemporaryDirectory() as where:
        status, out, err = run(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=f"{where}/nccl.%h.%p")
        files = [os.path.join(where, f) for f in os.listdir(where)]
        texts = [open(f).read() for f in files]
        report.case("NCCL_DEBUG_FILE", [] if status == 0 and "NCCL" not in out and sum("Init COMPLETE" in t for t in texts) == 2
                    else [f"{files} {texts} {out} {err}"])
    status, out, err = run(NCCL_DEBUG="LOUD")
    report.case("a level that is none", lacks(out, "NCCL WARN NCCL_DEBUG=LOUD"))
    status, out, err = run(NCCL_SOCKET_IFNAME="=lo", NCCL_DEBUG="INFO", COLL_TRANSPORTS="tcp")
    report.case("NCCL_SOCKET_IFNAME of a whole name", lacks(out, LINE + "NCCL_SOCKET_IFNAME==lo: COLL_INTERFACE=lo") + ([] if status == 0 else [err]))
    status, out, err = run(NCCL_SOCKET_IFNAME="nosuch", NCCL_DEBUG="WARN")
    report.case("NCCL_SOCKET_IFNAME that fits nothing", lacks(out + err, "NCCL_SOCKET_IFNAME=nosuch: no interface of this host fits") +
                (["it went on"] if status == 0 else []))
    status, out, err = run(NCCL_SOCKET_IFNAME="nosuch", NCCL_DEBUG="INFO", COLL_INTERFACE="lo")
    report.case("COLL_INTERFACE comes first", [] if status == 0 and "COLL_INTERFACE=" not in out else [out + err])
    status, out, err = run(["one", "2"], NCCL_DEBUG="VERSION")
    report.case("all devices of one process", lacks(out, banner) + ([] if status == 0 else [err]))
    return report.close()


sys.exit(main())
