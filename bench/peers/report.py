"""Tables of cells, for people: plain text or Markdown."""
from cells import PEERS, beside, median_us, median_used, ratios, size_text
from ranks import SHORT, TITLES

LEGEND = """us: microseconds of a call, median. own: ours in buffers of coll_mem_alloc(). torch: Gloo in PyTorch. floor: by hand (what
the machine can do). line: one hand-off, one way. a/b: median of the blocks' ratios (95 % interval of the median).
Beside busy processes, of a call and rank: cpu us, of all threads; sleeps and preempted, how often the kernel took another thread."""


def number(value):
    if value is None:
        return "-"
    return "%.3f" % value if value < 10 else "%.1f" % value if value < 1000 else "%.0f" % value


def ratio(value):
    if value is None:
        return "-"
    m, low, high = value
    form = "%.2f (%.2f-%.2f)" if m < 10 else "%.0f (%.0f-%.0f)"
    return form % (m, low, high)


def title(cell):
    return "%s, %s%s, %d ranks, %s%s" % (
        cell["kind"], cell["transport"], " " + cell["cc"] if cell["cc"] else "", cell["ranks"],
        "in place" if cell["place"] == "in" and cell["kind"] != "broadcast" else "out of place"
        if cell["kind"] not in ("broadcast", "barrier") else "one buffer" if cell["kind"] == "broadcast" else "no data",
        (", cold" if cell["cold"] else "") + (", %d busy processes" % cell["busy"] if cell.get("busy") else "") + (" (beside %s)" % ", ".join(TITLES[p] for p in beside(cell)) if beside(cell) else ""))


def groups(cells):
    out = {}
    for c in cells:
        out.setdefault(title(c), []).append(c)
    return out


def rows(cells):
    """Header and rows of one group."""
    seen = [p for p in ("ours", "ours_own", *PEERS, "floor", "line") if any(p in c["seconds"] for c in cells)]
    header = ["size"] + [SHORT[p] + " us" for p in seen]
    pairs = [(p, o) for o in ("ours", "ours_own") if o in seen for p in PEERS if p in seen]
    header += ["%s/%s" % (SHORT[p], SHORT[o]) for p, o in pairs]
    floors = [o for o in ("ours", "ours_own") if o in seen and "floor" in seen]
    lines = [o for o in ("ours",) if o in seen and "line" in seen]
    header += ["%s/floor" % SHORT[o] for o in floors] + ["%s/line" % SHORT[o] for o in lines]
    used = [p for p in seen if any(c.get("busy") and p in c.get("used", {}) for c in cells)]
    header += ["%s %s" % (SHORT[p], what) for p in used for what in ("cpu us", "sleeps", "preempted")]
    body = []
    for c in cells:
        body.append([size_text(c["bytes"])] + [number(median_us(c, p)) for p in seen] +
                    [ratio(ratios(c, p, o)) for p, o in pairs] + [ratio(ratios(c, o, "floor")) for o in floors] + [ratio(ratios(c, o, "line")) for o in lines] +
                    [number(v) for p in used for v in median_used(c, p) or (None, None, None)])
    return header, body


def text(cells):
    out = []
    for name, group in groups(cells).items():
        header, body = rows(group)
        width = [max(len(r[i]) for r in [header] + body) for i in range(len(header))]
        out.append(name)
        out += ["  ".join(v.rjust(w) for v, w in zip(r, width)) for r in [header] + body]
        out.append("")
    return "\n".join(out)


def markdown(cells):
    out = []
    for name, group in groups(cells).items():
        header, body = rows(group)
        out += ["### " + name, "", "| " + " | ".join(header) + " |", "|" + " ---: |" * len(header)]
        out += ["| " + " | ".join(r) + " |" for r in body] + [""]
    return "\n".join(out)
