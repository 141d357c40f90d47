#!/usr/bin/env python3
"""Two jobs of one user on one machine: ranks that may use the same processors see each other and yield, whichever job began
first, until the other one has ended, killed or not; others do not. Read from the log: decisions, not times. Each case has
a table of its own, and the machine counts as one with so many cores as COLL_TEST_CORES says.

usage: other_jobs.py BUILD-DIRECTORY
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

from job import Report, until

BUILD = sys.argv[1]
CPUS = sorted(os.sched_getaffinity(0))
COMES, GOES = "2 ranks of other jobs of this user share the cores", "no other job of this user crowds"


class Running:
    """Two ranks that call until they are ended."""

    def __init__(self, folder, name, cores, cpus=None, **more):
        self.log, self.out = f"{folder}/{name}.log", f"{folder}/{name}.out"
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update(COLL_DEBUG="info", COLL_LOG_FILE=self.log, COLL_TEST_CORES=str(cores), COLL_JOBS_FILE=f"{folder}/table")
        env.update(more)
        with open(self.out, "w") as out:
            self.p = subprocess.Popen([f"{BUILD}/tools/collrun", "-n", "2", f"{BUILD}/tests/allreduce_loop", "0", "1024",
                                       f"{folder}/stop"], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                      preexec_fn=lambda: os.sched_setaffinity(0, cpus or CPUS))
        if not until(lambda: len(self.ranks()) == 2, 60):
            sys.exit(f"{name} does not run: {open(self.out).read()}")

    def ranks(self):
        return [int(pid) for pid in re.findall(r"running \d (\d+)", open(self.out).read())]

    def count(self, text):
        return open(self.log).read().count(text)

    def sees(self, text, times):
        return until(lambda: self.count(text) == times, 60)

    def end(self, how):
        for pid in self.ranks() if how == signal.SIGKILL else [self.p.pid]:
            os.kill(pid, how)
        self.p.wait(60)


class Case:
    """A folder with jobs, which end with it."""

    def __init__(self, report):
        self.report, self.jobs = report, []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def job(self, cores, cpus=None, **more):
        self.jobs.append(Running(self.folder.name, f"job-{len(self.jobs)}", cores, cpus, **more))
        return self.jobs[-1]

    def check(self, name, good):
        said = [f"{j.log}: {line}" for j in self.jobs for line in open(j.log).read().splitlines() if "other job" in line]
        self.report.case(name, [] if good else said or ["no rank says anything of other jobs"])

    def __exit__(self, *_):
        for j in self.jobs:
            if j.p.poll() is None:
                j.end(signal.SIGTERM)
        self.folder.cleanup()


def main():
    report = Report()

    with Case(report) as c:
        first = c.job(2)
        c.check("alone, a job sees nobody", first.count("other job") == 0)
        second = c.job(2)
        c.check("the job that comes sees the one that runs", second.sees(COMES, 2))
        c.check("and the other way round", first.sees(COMES, 2))
        second.end(signal.SIGKILL)
        c.check("killed, it is seen no more", first.sees(GOES, 2))
        third = c.job(2)
        c.check("the next one is seen", first.sees(COMES, 4) and third.sees(COMES, 2))
        third.end(signal.SIGTERM)
        c.check("terminated, it is seen no more", first.sees(GOES, 4))
    with Case(report) as c:
        first, second, third = c.job(4), c.job(4), c.job(2)
        c.check("four ranks on four cores have one each; on two, whoever comes sees them",
                third.sees("4 ranks of other jobs of this user share", 2) and second.count("other job") == 0)
    if len(CPUS) >= 2:
        with Case(report) as c:
            first, second, third = c.job(2, CPUS[:1]), c.job(2, CPUS[1:2]), c.job(2, CPUS[:1])
            c.check("only who may use the same processors counts", first.sees(COMES, 2) and third.sees(COMES, 2) and
                    second.count("other job") == 0)
    with Case(report) as c:
        first, second = c.job(2), c.job(2, COLL_JOBS_FILE="none")
        third = c.job(2)
        c.check("COLL_JOBS_FILE=none: it neither looks nor is seen", first.sees(COMES, 2) and third.sees(COMES, 2) and
                second.count("other job") == 0)
    return report.close(skipped=int(len(CPUS) < 2))


sys.exit(main())
