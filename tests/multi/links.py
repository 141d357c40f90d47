#!/usr/bin/env python3
"""coll-links on four hosts of two ranks, of which one has a slow network card: the links of that host are named, and no others.
Names are checked, never rates. usage: links.py BUILD-DIRECTORY"""
import json
import os
import re
import subprocess
import sys

import apart

if __name__ == "__main__":
    apart.apart()

import clusters_hosts  # noqa: E402

HOSTS, LAME = ["a", "b", "c", "d"], "d"
EXPECTED = {frozenset((h, LAME)) for h in HOSTS if h != LAME}
RANKS = "a:2,b:2,c:2,d:2"


def shape(host, mbit):
    """Both ways: what leaves the host, and what the bridge sends to it."""
    rate = f"root tbf rate {mbit}mbit burst {max(16, mbit // 4)}kb latency 50ms"
    outer = "coll-v" + host.net.rsplit("-", 1)[1]
    return clusters_hosts.shell(f"ip netns exec {host.net} tc qdisc replace dev eth0 {rate}", f"tc qdisc replace dev {outer} {rate}").returncode == 0


def lame_host():
    """The hosts, with 1 Gb/s each and 20 Mb/s for the lame one. Exits where that is not allowed."""
    why = clusters_hosts.network()
    hosts = None if why else clusters_hosts.Hosts(*HOSTS)
    if hosts and not all(shape(h, 20 if name == LAME else 1000) for name, h in hosts.hosts.items()):
        why = "no traffic shaping"
    if why:
        print(f"skip links: {why}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    return hosts, {"PATH": f"{hosts.bin}:{os.environ['PATH']}", "HOME": "/tmp/home"}


def main(build):
    hosts, env = lame_host()
    failed = 0
    try:
        for form in ([], ["--json"], ["--alone"]):
            p = subprocess.run(hosts.hosts["a"].command([f"{build}/tools/collrun", "-H", RANKS, "--no-prefix", f"{build}/tools/coll-links", *form]),
                               capture_output=True, text=True, env=env, timeout=300)
            if form == ["--json"]:
                told = json.loads(p.stdout) if p.stdout else {"slow": []}
                named = {frozenset(k["hosts"]) for k in told["slow"] if k["rate_MB_s"] * 4 <= k["median_MB_s"]}
            else:
                named = {frozenset(x) for x in re.findall(r"^slow: link (\w+)-(\w+): [\d.]+ MB/s, median", p.stdout, re.M)}
            good = p.returncode == 1 and named == EXPECTED and "slow: rank" not in p.stdout
            failed += not good
            print(("ok   " if good else f"FAIL rc {p.returncode} ") + f"coll-links {' '.join(form)} names {sorted(map(sorted, named))}")
            if not good:
                print(p.stdout, p.stderr)
    finally:
        for host in hosts.hosts.values():
            host.end()
    print(f"{3 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
