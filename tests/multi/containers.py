#!/usr/bin/env python3
"""Ranks in containers on the network of their host: namespaces of mounts, host names and process numbers of their own, so
that they share no folder, and each has another name for the host. With a secret they meet, share memory and sum
right; without a folder and a secret both ends say what is missing.

usage: containers.py BUILD-DIRECTORY"""
import os
import subprocess
import sys

from job import Report, free_port

BUILD = os.path.abspath(sys.argv[1])
KEY = {"COLL_JOB_KEY": "9" * 32}
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("COLL_", "XDG_"))}
# The build may lie in a folder that is hidden.
ALONE = f"mount --bind '{BUILD}' /mnt && mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && "
SHARED = f"mount --bind '{BUILD}' /mnt && "
NAMED, PROC = "hostname container-{r} && ", "mount -t proc proc /proc && "
MOUNTS = ("--mount", "--propagation", "private")


class Ranks:
    """One process for each rank, each in new namespaces; rank 0 is started as late as the others can bear."""

    def __init__(self, count, setup, environment, flags=MOUNTS, sizes="64K", twice=False, front=()):
        port, ranks = free_port(), []
        perf = f"exec {'/mnt' if setup else BUILD}/bench/allreduce_perf -b 8 -e {sizes} -f 8 -n 3 -w 1 -c 1"
        for r in [*range(1, count), 0] + [0] * twice:
            env = {**PLAIN, "COLL_SIZE": str(count), "COLL_RANK": str(r), "COLL_ROOT": f"127.0.0.1:{port}", "COLL_DEBUG": "debug",
                   "COLL_CREATE_TIMEOUT_MS": "60000", **environment(r, port)}
            env = {k: v for k, v in env.items() if v is not None}
            line = setup.replace("{r}", str(r)) + perf
            ranks.append(subprocess.Popen([f.replace("{user}", str(4242 + r)) for f in front] + ["unshare", *flags, "sh", "-c", line], env=env, text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT))
        self.out = [p.communicate(timeout=150)[0] for p in ranks]
        self.status, self.all = [p.returncode for p in ranks], "\n".join(self.out)

    def works(self, transport):
        good = set(self.status) == {0} and self.all.count("Out of bounds values : 0 OK") == 1 and f" over {transport}" in self.all
        return [] if good else [f"{self.status} {self.all[:3000]}"]

    def refused(self, *texts):
        good = 0 not in self.status and all(t in self.all for t in texts)
        return [] if good else [f"{self.status} {self.all[:3000]}"]


def torchrun(rank, port):
    return {**KEY, "COLL_RANK": None, "COLL_SIZE": None, "COLL_ROOT": None, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}


def main():
    report = Report()
    if subprocess.run(["unshare", *MOUNTS, "sh", "-c", ALONE + "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skip: no mount namespaces here")
        return 77
    keyed, plain = lambda r, port: KEY, lambda r, port: {}
    report.case("no folder in common, 10 ranks", Ranks(10, ALONE, keyed).works("shm"))
    report.case("no folder in common, tcp", Ranks(3, ALONE, lambda r, port: {**KEY, "COLL_TRANSPORTS": "tcp"}).works("tcp"))
    report.case("no folder in common, torchrun", Ranks(2, ALONE, torchrun).works("shm"))
    report.case("no folder that can be written", Ranks(2, ALONE + "mount -o remount,ro /tmp && mount -o remount,ro /dev/shm && ",
                                                       keyed).works("shm"))
    report.case("no folder in common, no secret", Ranks(2, ALONE, lambda r, port: {"COLL_CREATE_TIMEOUT_MS": "1500"}).refused(
        "rank 1 of 2 did not connect", "in common need one COLL_JOB_KEY", "without a folder in common, set one COLL_JOB_KEY"))
    # Rank 2 does not come, so that the first rank 0 is still there when the second one comes.
    report.case("no folder in common, a second rank 0", Ranks(
        2, ALONE, lambda r, port: {**KEY, "COLL_SIZE": "3", "COLL_CREATE_TIMEOUT_MS": "3000"},
        twice=True).refused("a second process claims rank 0", "rank 2 of 3 did not connect"))
    names = MOUNTS + ("--uts",)
    processes = names + ("--pid", "--fork", "--kill-child")
    report.case("host names of their own", Ranks(3, SHARED + NAMED, plain, names).works("shm"))
    report.case("host names of their own, tcp", Ranks(2, SHARED + NAMED, lambda r, port: {"COLL_TRANSPORTS": "tcp"}, names).works("tcp"))
    report.case("process numbers of their own", Ranks(3, SHARED + NAMED + PROC, plain, processes, "4M").works("shm"))
    report.case("process numbers of their own, /proc of the host", Ranks(3, SHARED + NAMED, plain, processes, "4M").works("shm"))
    report.case("all of their own", Ranks(3, ALONE + NAMED + PROC, keyed, processes, "4M").works("shm"))
    report.case("all of their own, tcp", Ranks(3, ALONE + NAMED + PROC, lambda r, port: {**KEY, "COLL_TRANSPORTS": "tcp"},
                                               processes, "4M").works("tcp"))
    # Rank 0 counts them, and says so.
    divided = Ranks(2, SHARED + NAMED, lambda r, port: {"COLL_HOST_ID": f"host-{r}"}, names)
    report.case("COLL_HOST_ID divides", divided.works("tcp") or [] if "(2 hosts" in divided.all else [divided.all[:2000]])
    report.case("a user without a number", Ranks(3, "", keyed, ("--user",)).works("shm"))
    report.case("a user without a number, no secret", Ranks(2, "", plain, ("--user",)).refused("COLL-1119", "map-current-user"))
    report.case("a user with a number", Ranks(2, "", plain, ("--user", "--map-root-user")).works("shm"))
    front = ["setpriv", "--reuid", "{user}", "--clear-groups"]
    may = subprocess.run(["setpriv", "--reuid", "4242", "--clear-groups", f"{BUILD}/bench/allreduce_perf", "--help"],
                         capture_output=True).returncode == 0
    if may:
        report.case("users without a number for each other", Ranks(2, "", keyed, ("--user", "--map-root-user"), front=front).works("shm"))
    return report.close(int(not may))


sys.exit(main())
