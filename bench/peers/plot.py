"""A plot of one group of cells as SVG: time of a call, and how many times longer the peers take. No dependency."""
import math

from cells import median_us, ratios, size_text

LOOKS = {"ours": ("ours", "#c0392b", 2.6, ""), "ours_own": ("ours, own buffers", "#e67e22", 2.6, ""),
         "openmpi": ("Open MPI", "#2c6fbb", 1.6, ""), "mpich": ("MPICH", "#27864a", 1.6, ""),
         "gloo": ("Gloo", "#7d5ba6", 1.6, ""), "torch": ("Gloo in PyTorch", "#a67d9b", 1.6, "4 2"),
         "floor": ("floor", "#555555", 1.4, "2 3")}
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 300, 62, 44, 84


def decades(low, high):
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


class Panel:
    """One pair of logarithmic axes."""

    def __init__(self, left, title, sizes, values):
        self.left, self.title, self.sizes = left, title, sizes
        self.low, self.high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))
        if self.high == self.low:
            self.high *= 10
        self.out = []

    def x(self, size):
        a, b = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        return self.left + WIDTH * (math.log2(size) - a) / max(b - a, 1e-9)

    def y(self, value):
        a, b = math.log10(self.low), math.log10(self.high)
        return TOP + HEIGHT * (1 - (math.log10(value) - a) / (b - a))

    def text(self, x, y, what, anchor="middle", size=11, extra=""):
        self.out.append('<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d"%s>%s</text>' % (x, y, anchor, size, extra, what))

    def frame(self, unit):
        self.text(self.left + WIDTH / 2, TOP - 10, self.title, size=13)
        for d in decades(self.low, self.high):
            y = self.y(10.0 ** d)
            self.out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (self.left, self.left + WIDTH, y, y))
            self.text(self.left - 6, y + 4, "%g%s" % (10.0 ** d, unit), "end")
        step = max(1, math.ceil(len(self.sizes) / 9))
        for s in self.sizes[::step]:
            self.out.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#eee"/>' % (self.x(s), self.x(s), TOP, TOP + HEIGHT))
            self.text(self.x(s), TOP + HEIGHT + 16, size_text(s).replace(" ", "").replace("iB", ""), size=10)
        self.out.append('<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>' % (self.left, TOP, WIDTH, HEIGHT))

    def line(self, points, name):
        title, colour, width, dash = LOOKS[name]
        if not points:
            return
        path = " ".join("%.1f,%.1f" % (self.x(s), self.y(v)) for s, v in points)
        self.out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"%s><title>%s</title></polyline>' % (
            path, colour, width, ' stroke-dasharray="%s"' % dash if dash else "", title))


def svg(cells, title, subtitle):
    """cells of one group that differ in size only."""
    cells = sorted((c for c in cells if c["bytes"] > 0 and c["seconds"].get("ours")), key=lambda c: c["bytes"])
    if not cells:
        return None
    sizes = [c["bytes"] for c in cells]
    names = [n for n in LOOKS if any(n in c["seconds"] for c in cells)]
    us = {n: [(c["bytes"], median_us(c, n)) for c in cells if c["seconds"].get(n)] for n in names}
    by = {n: [(c["bytes"], r[0]) for c in cells for r in [ratios(c, n, "ours")] if r] for n in names if n != "ours"}
    us = {n: [(s, v) for s, v in p if v > 0] for n, p in us.items()}
    left = Panel(LEFT, "time of a call", sizes, [v for p in us.values() for _, v in p])
    right = Panel(LEFT + WIDTH + GAP, "time / ours in plain buffers", sizes, [v for p in by.values() for _, v in p] + [0.9, 1.1])
    left.frame(" us")
    right.frame("x")
    for n in names:
        left.line(us[n], n)
        if n != "ours":
            right.line(by[n], n)
    y = right.y(1)
    right.out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2"/>' % (
        right.left, right.left + WIDTH, y, y, LOOKS["ours"][1]))
    legend, x = [], LEFT
    for n in names:
        text, colour, width, dash = LOOKS[n]
        legend.append('<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="%g"%s/>' % (
            x, x + 22, TOP + HEIGHT + 38, TOP + HEIGHT + 38, colour, width, ' stroke-dasharray="%s"' % dash if dash else ""))
        legend.append('<text x="%d" y="%d" font-size="12">%s</text>' % (x + 28, TOP + HEIGHT + 42, text))
        x += 40 + 7 * len(text) + 8
    total = LEFT + 2 * WIDTH + GAP + 20
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif">' % (
        total, TOP + HEIGHT + 76, total, TOP + HEIGHT + 76)
    foot = '<text x="%d" y="%d" font-size="11" fill="#555">%s. %s</text>' % (LEFT, TOP + HEIGHT + 64, title, subtitle)
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *left.out, *right.out, *legend, foot, "</svg>", ""])
