#!/usr/bin/env python3
"""The table of the perf programs is read by what reads that of nccl-tests. A parser with its rules reads the lines before
the table, the header, the units, the rows and the closing lines; the numbers agree with each other and with the JSON. The
parser refuses tables that were broken on purpose.

usage: perf_table.py BUILD-DIRECTORY
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from job import Report

PLACE = ["time", "algbw", "busbw", "#wrong"]
NAMES = ["size", "count", "type", "redop", "root"] + 2 * PLACE
UNITS = ["(B)", "(elements)"] + 2 * ["(us)", "(GB/s)", "(GB/s)"]
DETAILS = ["min", "p50", "p99"]
TYPES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16 float double f8e4m3 f8e5m2 none".split()
OPS = "sum prod min max avg band bor bxor land lor lxor mulsum none".split()
NUMBER = r"\d+(\.\d+)?"  # no exponent, no sign: readers match [\d.]+
COLUMNS = [r"\d+", r"\d+", "|".join(TYPES), "|".join(OPS), r"-?\d+"] + 2 * [NUMBER, NUMBER, NUMBER, r"\d+|N/A"]
CONFIG = (r"# nThread \d+ nGpus \d+ minBytes \d+ maxBytes \d+ step: \d+\((factor|bytes)\) warmup iters: \d+ iters: \d+ "
          r"agg iters: \d+ validation: \d+ graph: \d+ unalign: \d+")
DEVICE = r"#  Rank +(\d+) Group +\d+ Pid +\d+ on +\S+ device +\d+ \[[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\] .+"


class Broken(Exception):
    pass


def want(condition, what):
    if not condition:
        raise Broken(what)


def half(word):
    """Of the last digit that is printed."""
    return 0.5 * 10.0 ** -len(word.partition(".")[2]) * 1.0001


def one(lines, pattern, what):
    found = [m for m in (re.match(pattern, line) for line in lines) if m]
    want(len(found) == 1, f"{len(found)} lines with {what}")
    return found[0]


def ends(line, words):
    """Where the words end in a line that holds them in this order."""
    at, out = 0, []
    for word in words:
        at = line.index(word, at) + len(word)
        out.append(at)
    return out


def read_row(line, names_line, details):
    words = line.split()
    want(len(words) == len(NAMES) + (2 * len(DETAILS) + 1 if details else 0), f"{len(words)} columns: {line}")
    for word, column, name in zip(words, COLUMNS, NAMES):
        want(re.fullmatch(column, word), f"{name} is {word}")
    for word in words[len(NAMES):-1]:
        want(re.fullmatch(NUMBER, word), f"{word} among the details")
    want(ends(line, words[:len(NAMES)]) == ends(names_line, NAMES), f"columns do not end where their names do: {line}")
    row = {"size": int(words[0]), "count": int(words[1]), "type": words[2], "redop": words[3], "root": int(words[4]),
           "algorithm": words[-1] if details else None}
    for place, at in (("out_of_place", 5), ("in_place", 9)):
        time_us, algbw, busbw = (float(w) for w in words[at:at + 3])
        row[place] = dict(time=time_us, algbw=algbw, busbw=busbw, busbw_half=half(words[at + 2]),
                          wrong=None if words[at + 3] == "N/A" else int(words[at + 3]))
        if time_us > half(words[at]):
            least, most = (row["size"] / (time_us + sign * half(words[at])) * 1e-3 for sign in (1, -1))
            want(least - half(words[at + 1]) <= algbw <= most + half(words[at + 1]), f"algbw is not size / time: {line}")
    return row


def read_table(text, details=False):
    """Ranks, rows, wrong values and average of a table; Broken where a reader of nccl-tests' tables would go wrong."""
    lines = text.splitlines()
    want(not any("|" in line for line in lines), "a bar")
    one(lines, CONFIG, "the configuration")
    devices = [int(m.group(1)) for m in (re.fullmatch(DEVICE, line) for line in lines) if m]
    want(devices == list(range(len(devices))) and devices, f"the ranks are {devices}")
    at = [i for i, line in enumerate(lines) if line[:1] == "#" and line[1:].split()[:1] == ["size"]]
    want(len(at) == 1 and at[0] > 0, f"{len(at)} headers")
    at = at[0]
    want(lines[at - 1][1:].split()[:2] == ["out-of-place", "in-place"], f"no places above the header: {lines[at - 1]}")
    want(lines[at][1:].split() == NAMES + (2 * DETAILS + ["algorithm"] if details else []), f"the names are {lines[at]}")
    units = lines[at + 1]
    want(units[:1] == "#" and units[1:].split() == UNITS + (6 * ["(us)"] if details else []), f"the units are {units}")
    closing = next((i for i in range(at + 2, len(lines)) if lines[i][:1] == "#"), len(lines))
    rows = [read_row(line, lines[at], details) for line in lines[at + 2:closing]]
    want(rows and not any(line and line[0] != "#" for line in lines[closing:]), "rows are missing, or behind the end")
    bounds = one(lines[closing:], r"# Out of bounds values : (\d+) (OK|FAILED)$", "the wrong values")
    wrong = sum(row[place]["wrong"] or 0 for row in rows for place in ("out_of_place", "in_place"))
    want((int(bounds.group(1)), bounds.group(2)) == (wrong, "FAILED" if wrong else "OK"), f"{wrong} wrong: {bounds.group()}")
    average = float(one(lines[closing:], r"# Avg bus bandwidth    : ([\d.]+) ?$", "the average").group(1))
    places = [row[place] for row in rows for place in ("out_of_place", "in_place")]
    mean, error = (sum(p[name] for p in places) / len(places) for name in ("busbw", "busbw_half"))
    want(abs(average - mean) <= error + 1e-5 * mean, f"an average of {average}, the mean of busbw is {mean}")
    return len(devices), rows, average


# ---- The programs ----

FACTORS = {"allreduce_perf": lambda n: 2 * (n - 1) / n, "broadcast_perf": lambda n: 1, "reduce_perf": lambda n: 1,
           "scan_perf": lambda n: 1, "exclusive_scan_perf": lambda n: 1, "sendrecv_perf": lambda n: 1, "barrier_perf": lambda n: 0}
OTHERS = lambda n: (n - 1) / n  # noqa: E731: of the programs that FACTORS does not have
ROOTED = ("broadcast_perf", "reduce_perf", "gather_perf", "scatter_perf")
REDUCING = ("allreduce_perf", "reduce_perf", "reduce_scatter_perf", "scan_perf", "exclusive_scan_perf")


def run(build, program, ranks, checks, path, flags):
    command = [f"{build}/tools/collrun", "-n", str(ranks), "--no-prefix", f"{build}/bench/{program}", "-n", "3", "-w", "1",
               "-c", str(checks), "-J", path] + flags
    done = subprocess.run(command, text=True, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    want(done.returncode == 0, f"status {done.returncode}: {done.stderr[-500:]}")
    with open(path) as f:
        return done.stdout, json.load(f)


def agree(program, ranks, checks, table, exact):
    """The table and the JSON, which has all digits."""
    size, rows, average = table
    factor = FACTORS.get(program, OTHERS)(ranks)
    want(size == ranks and len(rows) == len(exact["results"]), f"{size} ranks, {len(rows)} rows")
    busbw = []
    for row, other in zip(rows, exact["results"]):
        for name in ("size", "count", "type", "redop", "root"):
            want(row[name] == other[name], f"{name} is {row[name]} and {other[name]}")
        want((row["redop"] != "none") == (program in REDUCING) and (row["root"] >= 0) == (program in ROOTED),
             f"redop {row['redop']}, root {row['root']}")
        for place in ("out_of_place", "in_place"):
            seen, all_digits = row[place], other[place]
            want(seen["wrong"] == all_digits["wrong"] == (0 if checks else None), f"#wrong is {seen['wrong']}")
            want(abs(seen["busbw"] - all_digits["busbw"]) <= seen["busbw_half"] + 1e-6,
                 f"busbw is {seen['busbw']} and {all_digits['busbw']}")
            want(abs(all_digits["busbw"] - factor * all_digits["algbw"]) < 2e-6 * (1 + factor * all_digits["algbw"]),
                 f"a factor other than {factor}: {all_digits}")
            busbw.append(all_digits["busbw"])
    mean = sum(busbw) / len(busbw)
    want(abs(average - mean) <= 1e-6 + 1e-5 * mean, f"an average of {average}, the mean of the busbw is {mean}")


def judge(build, folder, program, ranks, checks, flags, details=False):
    try:
        text, exact = run(build, program, ranks, checks, f"{folder}/json", flags + (["--details"] if details else []))
        table = read_table(text, details)
        agree(program, ranks, checks, table, exact)
        if details:
            want([row["algorithm"] for row in table[1]] == [r["algorithm"] for r in exact["results"]], "another algorithm")
    except Broken as why:
        return [str(why)]
    return []


# ---- The parser ----

def line_with(word, change):
    return lambda text: "\n".join(change(line) if word in line else line for line in text.splitlines())


def in_row(column, value):
    """One column of each row replaced, its width kept."""
    def change(line):
        words = line.split()
        end = ends(line, words)[column]
        return line[:end - len(words[column])] + value.rjust(len(words[column])) + line[end:]
    return line_with(" float ", change)


BREAKS = (
    ("bars between the columns", line_with(" float ", lambda line: line[:52] + "  |" + line[55:])),
    ("a column too few", line_with(" float ", lambda line: line.rsplit(None, 1)[0])),
    ("a column too many", line_with(" float ", lambda line: line + "  ring")),
    ("no time in place", in_row(9, "N/A")),
    ("an exponent", in_row(6, "1e-4")),
    ("another algbw", in_row(6, "99.99")),
    ("no number of wrong values", in_row(8, "-")),
    ("wrong values that are not in the sum", in_row(8, "3")),
    ("an unknown type", in_row(2, "f32")),
    ("shifted columns", line_with(" float ", lambda line: " " + line)),
    ("names exchanged", line_with("#wrong", lambda line: line.replace("algbw", "busbw", 1))),
    ("no places", line_with("out-of-place", lambda line: "#")),
    ("other units", line_with("(GB/s)", lambda line: line.replace("(GB/s)", "(Gb/s)"))),
    ("no units", line_with("(GB/s)", lambda line: "#")),
    ("no average", line_with("Avg bus", lambda line: "#")),
    ("another average", line_with("Avg bus", lambda line: line.replace("23.5925", "23.6025"))),
    ("an average with an exponent", line_with("Avg bus", lambda line: line.split(":")[0] + ": 1e-05")),
    ("no count of wrong values", line_with("Out of bounds", lambda line: "#")),
    ("failed for nothing", line_with("Out of bounds", lambda line: line.replace("OK", "FAILED"))),
    ("no devices", line_with(" device ", lambda line: line.split(" device ")[0])),
    ("no configuration", line_with("nThread", lambda line: "#")),
    ("no rows", line_with(" float ", lambda line: "#")),
)


def refused(text, change):
    broken = change(text)
    if broken == text:
        return ["nothing was broken"]
    try:
        read_table(broken)
    except Broken:
        return []
    return ["was read"] + broken.splitlines()[-8:]


SAMPLE = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0 unalign: 0
# Using devices
#  Rank  0 Group  0 Pid   4711 on      node1 device  0 [0000:0b:00] CPU
#  Rank  1 Group  0 Pid   4712 on      node1 device  1 [0000:0c:00] CPU
#
#                                                              out-of-place                       in-place          \n\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        \n\
     1048576        262144     float     sum      -1   100.00   10.49   10.49       0    50.00   20.97   20.97       0
     4194304       1048576     float     sum      -1   200.00   20.97   20.97       0   100.00   41.94   41.94       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 23.5925 \n\
#
"""


def main():
    report, build = Report(), os.path.abspath(sys.argv[1])
    wrong = in_row(8, "3")(SAMPLE).replace("0 OK", "6 FAILED")
    for name, text in (("the sample", SAMPLE), ("the sample with wrong values", wrong)):
        try:
            good = [] if read_table(text)[0] == 2 else ["not two ranks"]
        except Broken as why:
            good = [str(why)]
        report.case(f"{name} is read", good)
    for name, change in BREAKS:
        report.case(f"refused: {name}", refused(SAMPLE, change))
    sizes = ["-b", "16", "-e", "1M", "-f", "256"]
    with tempfile.TemporaryDirectory() as folder:
        for program in ("allreduce_perf", "all_gather_perf", "broadcast_perf", "sendrecv_perf", "barrier_perf"):
            for ranks in (1, 2):
                for checks in (0, 1):
                    report.case(f"{program}, {ranks} ranks, -c {checks}", judge(build, folder, program, ranks, checks, sizes))
        for program in ("reduce_perf", "reduce_scatter_perf", "all_to_all_perf", "all_to_allv_perf", "scan_perf", "gather_perf", "scatter_perf"):
            report.case(f"{program}, 2 ranks", judge(build, folder, program, 2, 1, sizes))
        report.case("all types and operations", judge(build, folder, "allreduce_perf", 2, 1, "-b 64K -e 64K -d all -o all".split()))
        for program in sorted(set(FACTORS) | set(ROOTED) | set(REDUCING) | {"all_gather_perf", "all_to_all_perf", "all_to_allv_perf"}):
            for kind in ("f8e4m3", "f8e5m2"):
                flags = f"-b 37 -e 50653 -f 37 -d {kind}".split() + (["-o", "all"] if program in REDUCING else [])
                if program != "barrier_perf":
                    report.case(f"{program}, 2 ranks, {kind}", judge(build, folder, program, 2, 1, flags))
        for program in ("scan_perf", "exclusive_scan_perf"):
            report.case(f"{program}, 3 ranks, all", judge(build, folder, program, 3, 1, "-b 64K -e 64K -d all -o all".split()))
        report.case("all_to_allv_perf, 5 ranks", judge(build, folder, "all_to_allv_perf", 5, 1, sizes + ["-d", "int8"]))
        report.case("the defaults of nccl-tests", judge(build, folder, "allreduce_perf", 2, 1, sizes + "-C 0 -D 0 -G 0 -I 0 -K 0 -M 0 -S 0 -p 0 -x 0 -y 0 -z 0 -t 1".split()))
        report.case("sizes of 0", judge(build, folder, "allreduce_perf", 2, 1, "-b 0 -e 64 -f 4".split()))
        for program in ("allreduce_perf", "sendrecv_perf"):
            report.case(f"{program}, 2 ranks, --details", judge(build, folder, program, 2, 1, sizes, details=True))
    sys.exit(report.close())


main()
