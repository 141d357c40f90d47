"""The least time of a collective on hosts that are joined by a switch, from the rates of their links; and bare streams that
need this time on the same links.

Nothing is measured here. A rate is in Mb/s; a group is a host, or a site behind an uplink of its own; whatever leaves or
enters a group passes its links. Inside a host nothing costs anything.
"""

KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
STREAM_TIMES = 64


class Links:
    """nics: the rates of each host's interfaces, as many on each; sites: the site of each host, or None; uplink: the
    rate by which a site is joined to the others."""

    def __init__(self, nics, sites=None, uplink=None):
        self.nics, self.sites, self.uplink = nics, sites, uplink
        self.hosts = len(nics)

    def site_of(self, host):
        return self.sites[host] if self.sites else 0

    def groups(self):
        """[(hosts of the group, rate of its links)]: each host, and each site."""
        out = [([h], sum(rates)) for h, rates in enumerate(self.nics)]
        for site in sorted(set(self.sites or [])):
            out.append(([h for h in range(self.hosts) if self.sites[h] == site], self.uplink))
        return [g for g in out if len(g[0]) < self.hosts]

    def edge(self, rail, host):
        """What a stream of this rail from this host to the next one can have beside those of all other hosts."""
        there = (host + 1) % self.hosts
        rate = min(self.nics[host][rail], self.nics[there][rail])
        return min(rate, self.uplink) if self.site_of(host) != self.site_of(there) else rate


def exchange(rates, size):
    """All-reduce of groups joined by one switch: each must send and receive all of it, and all of them together must send
    it 2 (n - 1) times: once to the place of its sum from all but one, once from there to all but one."""
    return max(size / min(rates), 2 * (len(rates) - 1) * size / sum(rates))


def least_s(kind, size, ranks, links):
    """Seconds; size: bytes of the whole vector, all blocks together; ranks: of each host. The root of a broadcast or a
    reduce may be anywhere."""
    groups = links.groups()
    if not groups:
        raise ValueError("one host has no links")
    if kind == "all_reduce":
        hosts = [rate for members, rate in groups[:links.hosts]]
        sites = [rate for members, rate in groups[links.hosts:]]
        bits = 8 * max(exchange(hosts, size), exchange(sites, size) if sites else 0)
    elif kind in ("broadcast", "reduce"):
        bits = 8 * size / min(rate for _, rate in groups)
    elif kind in ("all_gather", "reduce_scatter"):
        # Of an all-gather, all that is of a group leaves it at least once, and all the rest enters it; of a
        # reduce-scatter the other way round.
        bits = 0
        for members, rate in groups:
            own = size * sum(ranks[h] for h in members) / sum(ranks)
            bits = max(bits, 8 * max(own, size - own) / rate)
    else:
        raise ValueError("no bound of %s" % kind)
    return bits / 1e6


def streams(links):
    """Of each host and rail (rate out, rate in) of a ring of bare streams that can all run at once, and the fastest rate."""
    rails = range(len(links.nics[0]))
    ring = [[(links.edge(k, h), links.edge(k, h - 1 if h else links.hosts - 1)) for k in rails] for h in range(links.hosts)]
    return ring, max(out for host in ring for out, _ in host)


def stream_bytes(seconds, fastest):
    """The bytes of a job of stream.c, which moves 64 times as many, for what the fastest stream moves in that time: whole
    floats, as jobs of all drivers are."""
    return max(4, round(seconds * fastest * 1e6 / 8 / STREAM_TIMES / 4) * 4)
