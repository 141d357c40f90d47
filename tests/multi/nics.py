#!/usr/bin/env python3
"""Which NIC each rank sends over: ranks in two network namespaces, joined by two veth pairs, whose places come from a file of
hwloc written here: e0 at one package, e1 at the other, one core each. Bytes are counted by the kernel for each socket of each
rank. Ranks use the NIC of their package; NICs carry what their rates say, and the file decides, not their names. What
coll_comm_explain() says of NICs is what has carried the bytes.

usage: nics.py BUILD-DIRECTORY
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from job import Report, until
from wires import wires_or_none

COUNT, ENOUGH = 3 << 19, 48 << 20  # of two ranks each sends 12 windows a call: 8 and 4 over rails of 2 to 1
SETS = 'cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}"'
PACKAGE = f"""
    <object type="Package" os_index="{{i}}" {SETS} gp_index="{{i}}0">
      <object type="NUMANode" os_index="{{i}}" {SETS} gp_index="{{i}}1" local_memory="1073741824">
        <page_type size="4096" count="262144"/>
      </object>
      <object type="Core" os_index="{{i}}" {SETS} gp_index="{{i}}2">
        <object type="PU" os_index="{{cpu}}" {SETS} gp_index="{{i}}3"/>
      </object>
      <object type="Bridge" gp_index="{{i}}4" bridge_type="0-1" depth="0" bridge_pci="0000:[{{i}}0-{{i}}2]">
        <object type="PCIDev" gp_index="{{i}}5" pci_busid="0000:{{i}}1:00.0" pci_type="0200 [8086:1521] [0000:0000] 01" pci_link_speed="2.0">
          <object type="OSDev" gp_index="{{i}}6" name="{{nic}}" osdev_type="2"/>
        </object>
        <object type="PCIDev" gp_index="{{i}}7" pci_busid="0000:{{i}}2:00.0" pci_type="0302 [10de:2330] [0000:0000] 01" pci_link_speed="2.0"/>
      </object>
    </object>"""


def machine(cpus, nics):
    """hwloc's XML of two packages, each with one of these CPUs and NICs, and a GPU."""
    packages = "".join(PACKAGE.format(i=i + 1, cpu=cpus[i], nic=nics[i], cpus=f"0x{1 << cpus[i]:08x}", nodes=f"0x{2 << i:08x}")
                       for i in range(2))
    sets = SETS.format(cpus=f"0x{1 << cpus[0] | 1 << cpus[1]:08x}", nodes="0x00000006")
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
            f'  <object type="Machine" os_index="0" {sets} allowed_cpuset="0x{1 << cpus[0] | 1 << cpus[1]:08x}" '
            f'allowed_nodeset="0x00000006" gp_index="1">{packages}\n  </object>\n</topology>\n')


def sent(wires, ranks):
    """Of each rank (its side, its process) the bytes that the peer has over e0 and over e1."""
    found = [[0, 0] for _ in ranks]
    for side in range(2):
        out = subprocess.run(wires.inside(side) + ["ss", "-tinpHO"], capture_output=True, text=True).stdout
        for line in out.splitlines():
            where = re.search(r"\s\[?(?:::ffff:)?%s\.(\d)\.%d\]?:\d+\s" % (re.escape(wires.network), 1 + side), line)
            size, pid = re.search(r"bytes_acked:(\d+)", line), re.search(r"pid=(\d+)", line)
            for r, (s, process) in enumerate(ranks):
                if where and size and pid and s == side and int(pid.group(1)) == process:
                    found[r][int(where.group(1))] += int(size.group(1))
    return found


def explained(said, r, bytes_of, faults):
    """What rank r said before its calls, against what was counted."""
    text = re.search(rf"^explain {r} .*; to other hosts by tcp, as far as from its (?:CPUs|device): (.*)$", said, re.M)
    shares = {nic: int(pc) for nic, pc in re.findall(r"(e[01]) \d+ Mb/s [a-zA-Z ]+ (\d+) %", text.group(1))} if text else {}
    counted = 100 * bytes_of[1] / max(1, sum(bytes_of))
    if sorted(shares) != ["e0", "e1"] or sum(shares.values()) not in (99, 100, 101) or abs(shares["e1"] - counted) > 6:
        faults.append(f"rank {r} explains {text.group(1) if text else said[:300]}, but {counted:.0f} % went over e1")


def run(build, wires, cpus, pins, nics, rates, faults, devices=None):
    """The share of e1 in what each rank sends; rank r is on side r % 2, on CPU pins[r // 2], and has the GPU of package devices[r // 2]."""
    with tempfile.TemporaryDirectory() as where:
        stop, xml = os.path.join(where, "stop"), os.path.join(where, "machine.xml")
        with open(xml, "w") as f:
            f.write(machine(cpus, nics))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COLL_", "HWLOC_"))}
        env.update(COLL_TRANSPORTS="shm,tcp", COLL_SIZE=str(2 * len(pins)), HWLOC_XMLFILE=xml, COLL_LINK_RATES=rates,
                   COLL_ROOT=f"{wires.address(0, 0)}:{random.randrange(20000, 30000)}", COLL_JOB_KEY=os.urandom(16).hex())
        if devices:
            env.update(COLL_CUDA_LIBRARY=f"{build}/tests/softcuda/libcuda.so.1", SOFTCUDA_DEVICES="2", SOFTCUDA_PCI="0000:12:00.0,0000:22:00.0")
        job = [subprocess.Popen(wires.inside(r % 2) + ["taskset", "-c", str(pins[r // 2]), f"{build}/tests/allreduce_loop", "0",
                                                       str(COUNT), stop], env=dict(env, COLL_RANK=str(r), **({"COLL_DEVICE": f"cuda:{devices[r // 2]}"} if devices else {})),
                                text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r in range(2 * len(pins))]
        ranks = [(r % 2, p.pid) for r, p in enumerate(job)]
        until(lambda: sum(map(sum, sent(wires, ranks))) >= ENOUGH or any(p.poll() is not None for p in job), 60)
        for p in job:  # while they run, two sockets are not read at one time
            p.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        bytes_of = sent(wires, ranks)
        for p in job:
            p.send_signal(signal.SIGCONT)
        open(stop, "w").close()
        for r, p in enumerate(job):
            try:
                said = p.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                p.kill()
                said = p.communicate()[0] + "it does not end"
            explained(said, r, bytes_of[r], faults)
            if p.returncode:
                faults.append(f"rank {r}: exit status {p.returncode}: {said[-200:]}")
    if sum(map(sum, bytes_of)) < ENOUGH:
        faults.append(f"too little was sent: {bytes_of}")
    return bytes_of


def part(bytes_of, ranks):
    a, b = (sum(bytes_of[r][k] for r in ranks) for k in range(2))
    return b / max(1, a + b)


def judge(faults, what, got, expected, about=0.06):
    if abs(got - expected) > about:
        faults.append(f"{what}: {got:.3f} over e1, not {expected:.3f}")


def near(build, wires, cpus, nics, of_package):
    """Four ranks a host, two at each package: each has the NIC of its package."""
    faults = []
    bytes_of = run(build, wires, cpus, [cpus[0], cpus[1], cpus[0], cpus[1]], nics, "e0:1000,e1:1000", faults)
    for r in range(8):
        judge(faults, f"rank {r}", part(bytes_of, [r]), of_package[r // 2 % 2])
    return bytes_of, faults


def crowded(build, wires, cpus):
    """All at one package: the NIC of the other one has half all the same."""
    faults = []
    bytes_of = run(build, wires, cpus, [cpus[0]] * 4, ["e0", "e1"], "e0:1000,e1:1000", faults)
    judge(faults, "all", part(bytes_of, range(8)), 0.5)
    for r in range(8):
        judge(faults, f"rank {r}", min(part(bytes_of, [r]), 1 - part(bytes_of, [r])), 0)
    return bytes_of, faults


def devices(build, wires, cpus):
    """The device of a rank counts, not its CPUs: each has the GPU of the other package."""
    faults = []
    bytes_of = run(build, wires, cpus, [cpus[0], cpus[1], cpus[0], cpus[1]], ["e0", "e1"], "e0:1000,e1:1000", faults, [1, 0, 1, 0])
    for r in range(8):
        judge(faults, f"rank {r}", part(bytes_of, [r]), 1 - r // 2 % 2)
    return bytes_of, faults


def rated(build, wires, cpus):
    """2 to 1: the ranks near the faster NIC have it alone; of the others each rail has what is left."""
    faults = []
    bytes_of = run(build, wires, cpus, [cpus[0], cpus[1], cpus[0], cpus[1]], ["e0", "e1"], "e0:1000,e1:500", faults)
    judge(faults, "all", part(bytes_of, range(8)), 1 / 3)
    for side in range(2):
        judge(faults, f"host {side}, near e0", part(bytes_of, [side, 4 + side]), 0)
        judge(faults, f"host {side}, near e1", part(bytes_of, [2 + side, 6 + side]), 2 / 3)
    return bytes_of, faults


def few(build, wires, cpus):
    """Hosts of two ranks, and of one: where nobody asks what is inside a host, NICs are near and far all the same."""
    faults = []
    bytes_of = run(build, wires, cpus, [cpus[1], cpus[0]], ["e0", "e1"], "e0:1000,e1:1000", faults)
    for r in range(4):
        judge(faults, f"rank {r}", part(bytes_of, [r]), 1 - r // 2)
    bytes_of += run(build, wires, cpus, [cpus[1]], ["e0", "e1"], "e0:1000,e1:500", faults)
    judge(faults, "a rank alone", part(bytes_of, [4, 5]), 1 / 3)
    return bytes_of, faults


def main():
    build = os.path.abspath(sys.argv[1])
    cpus = sorted(os.sched_getaffinity(0))[:2]
    wires = wires_or_none("nics", "10.91", 2, ("ss", "taskset"), None if len(cpus) == 2 and cpus[1] < 32 else "two CPUs are needed")
    if not wires:
        return 77
    report = Report()
    try:
        for name, case, *rest in (("each rank has the NIC of its package", near, ["e0", "e1"], [0, 1]),
                                  ("the other way round", near, ["e1", "e0"], [1, 0]),
                                  ("all ranks at one package", crowded), ("the NIC near the device", devices), ("rates of 2 to 1", rated),
                                  ("hosts of two ranks and of one", few)):
            bytes_of, faults = case(build, wires, cpus, *rest)
            print("     MB over e0 and e1, by rank: " + "  ".join(f"{a >> 20} {b >> 20}" for a, b in bytes_of))
            report.case(name, faults)
    finally:
        wires.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
