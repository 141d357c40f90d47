#!/usr/bin/env python3
"""The page of ./run demo: one file of HTML with its pictures, no scripts and nothing from elsewhere.

It measures all_reduce beside what this machine has (Open MPI, MPICH, Gloo; else what memory and caches can do), with idle cores and beside
busy processes. It kills a rank in mid-training and notes what the others say, and after how long; then a job that goes on after a death.
Of the training it shows the curve and the sample that ddp_gpt left in a folder. usage: demo.py BUILD TRAINED OUT.html [--quick]"""
import html
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
NAMES = {"ours": "libcoll", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo", "floor": "by hand"}
COLOURS = {"ours": "#0b6e4f", "openmpi": "#c1440e", "mpich": "#8e5ea2", "gloo": "#1f77b4", "floor": "#888888"}
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
pre{background:#f4f4f2;padding:.8rem;overflow-x:auto;font-size:13px;line-height:1.35}svg{max-width:100%;height:auto}
h1{font-size:1.7rem}h2{font-size:1.25rem;margin-top:2.2rem}.said{border-left:4px solid #c1440e;padding-left:.8rem}"""


def run(args, timeout=120, **more):
    return subprocess.run(args, capture_output=True, text=True, timeout=timeout, **more)


# ---- Pictures ----

def chart(series, x_label, y_label, x_text, log=True):
    """Lines in SVG; series: {name: (colour, [(x, y)])}. Both axes are logarithmic, or neither."""
    wide, high, left, right, top, low = 720, 300, 70, 190, 15, 45
    points = [p for _, ps in series.values() for p in ps]
    if not points:
        return "<p>Nothing was measured.</p>"
    scale = math.log10 if log else float
    xs, ys = [scale(x) for x, _ in points], [scale(y) for _, y in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    if log:
        y0, y1 = math.floor(y0), max(math.ceil(y1), math.floor(y0) + 1)
    else:
        y0, y1 = min(0, y0), y1 or 1

    def at(x, y):
        return (left + (scale(x) - x0) / ((x1 - x0) or 1) * (wide - left - right), high - low - (scale(y) - y0) / ((y1 - y0) or 1) * (high - low - top))
    out = [f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="{html.escape(y_label)} by {html.escape(x_label)}" font-size="12">']
    for y in [10.0 ** k for k in range(int(y0), int(y1) + 1)] if log else [y for y in range(int(y1) + 1)]:
        h = at(points[0][0], y)[1]
        out.append(f'<line x1="{left}" x2="{wide - right}" y1="{h:.1f}" y2="{h:.1f}" stroke="#ddd"/><text x="{left - 6}" y="{h + 4:.1f}" text-anchor="end">{"%.0f" % y if y >= 1 else "%g" % y}</text>')
    for x in sorted({p[0] for p in points}) if log else [p[0] for p in points[::max(1, len(points) // 6)]]:
        out.append(f'<text x="{at(x, points[0][1])[0]:.1f}" y="{high - low + 18}" text-anchor="middle">{html.escape(x_text(x))}</text>')
    out.append(f'<text x="{(left + wide - right) / 2}" y="{high - 6}" text-anchor="middle">{html.escape(x_label)}</text>')
    out.append(f'<text x="12" y="{(high - low) / 2}" text-anchor="middle" transform="rotate(-90 12 {(high - low) / 2})">{html.escape(y_label)}</text>')
    ends = []
    for name, (colour, ps) in series.items():
        line = " ".join("%.1f,%.1f" % at(x, y) for x, y in ps)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append([at(*ps[-1])[1], name, colour])
    ends.sort()
    for i, (h, name, colour) in enumerate(ends):  # names beside the ends of lines, not on each other
        ends[i][0] = h = max(h, ends[i - 1][0] + 15) if i else h
        out.append(f'<text x="{wide - right + 8}" y="{h + 4:.1f}" fill="{colour}">{html.escape(name)}</text>')
    return "\n".join(out + ["</svg>"])


def size_text(n):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n // unit} {name}"
    return f"{n} B"


# ---- Parts ----

def machine(build):
    done = run([f"{build}/tools/collrun", "-n", "2", f"{build}/tools/coll-info", "--brief"])
    return "<h2>This machine</h2><pre>" + html.escape(done.stdout) + "</pre>", done.returncode


def measured(build, out, busy, quick):
    """All_reduce of two ranks, beside what is there."""
    cells = f"{out}.cells.json"
    args = [sys.executable, f"{ROOT}/bench/peers/run.py", "--build", build, "--coll", "all_reduce", "--sizes", "8,4K,64K" + ("" if busy else ",1M,16M"), "--place", "out",
            "--buffers", "plain", "--json", cells, "--blocks", "3" if quick else "5"]
    args += ["--busy", "4", "--unpinned", "--no-floor", "--block-ms", "100" if quick else "300"] if busy else []
    done = run(args, 170)
    if done.returncode:
        return None, f"<p>Not measured: {html.escape((done.stderr or done.stdout)[-300:])}</p>"
    with open(cells, encoding="utf-8") as f:
        found = json.load(f)["cells"]
    os.unlink(cells)
    series = {}
    for cell in found:
        for lib, seconds in cell["seconds"].items():
            if seconds and lib in NAMES:
                series.setdefault(NAMES[lib], (COLOURS[lib], []))[1].append((cell["bytes"], statistics.median(seconds) * 1e6))
    return series, chart(series, "bytes", "microseconds", size_text)


def training(trained):
    """The curve and the sample of a run that is over."""
    if not os.path.exists(f"{trained}/metrics.jsonl"):
        return ""
    with open(f"{trained}/metrics.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.startswith("{")]
    points = [(r["step"], r["loss"]) for r in rows if r.get("loss") is not None and r.get("step")]
    text = "<h2>A small GPT, trained by two processes</h2>" + chart({"loss": (COLOURS["ours"], points)}, "step", "loss", lambda x: "%d" % x, log=False)
    if os.path.exists(f"{trained}/sample.txt"):
        with open(f"{trained}/sample.txt", encoding="utf-8") as f:
            said = re.sub(r"^----.*\n", "", f.read(), flags=re.M)
        text += "<p>What it says when asked to go on, after those steps:</p><pre>" + html.escape(said[:700]) + "</pre>"
    return text


def killed(build, trained):
    """(seconds, sentence, status): rank 1 of 3 is killed while it trains."""
    job = subprocess.Popen([f"{build}/tools/collrun", "-n", "3", f"{build}/examples/ddp_gpt", "--steps", "100000", "--log-every", "1", "--batch", "24", "--out", f"{trained}-killed",
                            "--overwrite"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    at, sentence, steps = None, "", 0
    try:
        for line in job.stdout:
            steps += "  loss " in line
            if steps >= 3 and at is None:
                os.kill(rank_of(job.pid, 1), signal.SIGKILL)
                at = time.monotonic()
            if at and "is dead" in line:
                took, sentence = time.monotonic() - at, re.sub(r"^\[\d+\] ", "", line.strip())
                break
        job.stdout.read()
        return (took, sentence, job.wait(60)) if sentence else None
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def rank_of(launcher, rank):
    """The process of a rank: below the launcher's process, and its environment says so."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
                if f"COLL_RANK={rank}" not in f.read().split("\0"):
                    continue
            above = int(pid)
            while above not in (0, 1, launcher):
                above = parent_of(above)
            if above == launcher:
                return int(pid)
        except (OSError, IndexError):
            continue
    raise SystemExit(f"demo: rank {rank} is not there")


def page(parts):
    return f"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>libcoll on this machine</title><style>{STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"


def outside(text):
    """What a page would fetch from elsewhere, or run."""
    return re.findall(r"<script|<link|<img|<iframe|\bsrc=|\bhref=|url\(|@import|\bon\w+=", text)


def main():
    build, trained, out, quick = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]), "--quick" in sys.argv
    here, failed = machine(build)
    parts = ["<h1>libcoll on this machine</h1>", f"<p>Made by <code>./run demo</code>, {time.strftime('%Y-%m-%d %H:%M')}.</p>", here]
    for busy in (False, True):
        series, picture = measured(build, out, busy, quick)
        failed += series is None
        parts.append(f"<h2>All-reduce of two processes, {'beside four processes that compute' if busy else 'each with a core'}</h2>" + picture)
        if series and not busy:
            others = [n for n in series if n not in (NAMES["ours"], NAMES["floor"])]
            parts.append("<p>Libraries take turns in one run; medians of blocks. By hand is what the machine can do (bench/peers/floor.c). " + ("" if others else "No other library was found here: <code>./run setup bench</code> installs some. ") +
                         "Load of the machine: %.1f.</p>" % os.getloadavg()[0])
    parts.append(training(trained))
    death = killed(build, trained)
    failed += death is None
    if death:
        parts.append(f"<h2>A rank is killed while it trains</h2><p>Rank 1 of 3 was killed (kill -9). The others said, {death[0]:.2f} s later:</p>"
                     f"<p class=\"said\"><code>{html.escape(death[1])}</code></p><p>The job ended with status {death[2]}.</p>")
        print("demo: killed a rank in mid-training; %.2f s later: %s" % (death[0], death[1]))
    go_on = run([f"{build}/tools/collrun", "-n", "4", "--no-prefix", f"{build}/examples/example_survive"])
    failed += go_on.returncode != 0 or "3 go on" not in go_on.stdout
    parts.append("<h2>A job that goes on</h2><p>Four ranks count; one dies, and three agree who is left (<code>examples/survive.c</code>):</p><pre>" + html.escape(go_on.stdout) + "</pre>")
    text = page(parts)
    if outside(text) or not outside(text.replace("<h1>", "<script>")):
        print("demo: the page leads elsewhere: %s" % outside(text))
        failed += 1
    with open(out, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"demo: {out}")
    return 1 if failed else 0


sys.exit(main())
