"""torch's store of a job on several hosts that was started without torch's variables: what its calls do, and that nobody from outside of the
job reads or changes it. The second needs root and `ip`: two hosts and a stranger's third are network namespaces.

usage: torch_store.py [CASE...]
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile

import forked
from forked import check

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "multi"))
from job import inodes, until  # noqa: E402
from wires import ip, missing  # noqa: E402

# With the processors taken away: torch alone takes half a minute to import.
LIMIT_S, NETWORK, PORT = 240, "10.97.0", 29461

HEAD = ("import os, sys, threading, time\nfrom datetime import timedelta\nimport torch, torch.distributed as dist\nimport coll.torch\n"
        "dist.init_process_group('coll')\nrank, size = dist.get_rank(), dist.get_world_size()\n"
        "store = dist.distributed_c10d._get_default_store()\n")

CALLS = HEAD + """
own = coll.torch._store._stores[-1]
if rank == 0: store.set('word', 'said')
assert store.get('word') == b'said' and store.check(['word']) and not store.check(['word', 'none'])
store.add('count', rank + 1)
while store.add('count', 0) < size * (size + 1) // 2: time.sleep(0.01)
assert store.get('count') == b'%d' % (size * (size + 1) // 2)

def late(f, error=dist.DistStoreError):
    try: f()
    except error as e: return str(e)
    raise AssertionError('it ends')

assert 'none' in late(lambda: store.wait(['none'], timedelta(milliseconds=50)))
short = dist.PrefixStore('own', own)
own.set_timeout(timedelta(milliseconds=50))
late(lambda: short.get('none'))
late(lambda: own.multi_get(['word', 'none']))
own.set_timeout(timedelta(seconds=100))
# A thread that waits holds up no other, and an answer that was given up leaves none behind.
got = []
waits = threading.Thread(target=lambda: got.append(store.get(f'later{rank}')))
waits.start()
store.set(f'later{rank}', b'\\0\\1\\xff')
waits.join()
assert got == [b'\\0\\1\\xff'], got
if rank: own.wait([f'from{rank - 1}'])
own.set(f'from{rank}', '')
own.wait([f'from{r}' for r in range(size)])
if rank == 0: own.set('swap', 'old')
own.wait(['swap'])
assert own.compare_set('none', 'other', 'new') == b'other' and not own.check(['none'])
own.compare_set('swap', 'old', f'new {rank}')
assert own.get('swap').startswith(b'new ')
assert own.compare_set(f'fresh{rank}', '', 'made') == b'made' == own.get(f'fresh{rank}')
own.append('all', f'{rank}')
while len(own.get('all')) < size: time.sleep(0.01)
assert sorted(own.get('all').decode()) == sorted(map(str, range(size)))
own.multi_set([f'a{rank}', f'b{rank}'], ['1', b'2'])
assert own.multi_get([f'b{rank}', f'a{rank}']) == [b'2', b'1']
nested = dist.PrefixStore('x', dist.PrefixStore('y', own))
nested.set(f'k{rank}', 'v')
assert nested.get(f'k{rank}') == b'v' == own.get(f'y/x/k{rank}') and nested.delete_key(f'k{rank}') and not nested.delete_key(f'k{rank}')
assert nested.num_keys() > 5 and f'a{rank}' in own.list_keys()
own.queue_push(f'q{rank}', 'first'); own.queue_push(f'q{rank}', 'second')
assert own.queue_len(f'q{rank}') == 2 and own.queue_pop(f'q{rank}') == b'first' and own.queue_pop(f'q{rank}', False) == b'second'
late(lambda: own.queue_pop(f'q{rank}', False), dist.QueueEmptyError)
own.set('word2', 'x')
assert 'int' in late(lambda: own.add('word2', 1))
large = os.urandom(3_000_000)
own.set(f'large{rank}', large)
assert own.get(f'large{rank}') == large
if rank == 1: own.wait(['end0', 'end2'])
own.set(f'end{rank}', '')
own.wait([f'end{r}' for r in range(size)])
dist.barrier()
dist.destroy_process_group()
print('right')
"""


def calls():
    """Every call, on three hosts (by COLL_HOST_ID)."""
    hosts = {"COLL_ROOT": f"127.0.0.1:{PORT}", "COLL_LOCAL_SIZE": "1", "COLL_JOB_KEY": secrets.token_hex(16)}
    body = forked.program("import os\nos.environ['COLL_HOST_ID'] = 'host-' + os.environ['COLL_RANK']\nos.environ['COLL_LOCAL_RANK'] = '0'\n" + CALLS)
    code, out, err = forked.run(3, body, LIMIT_S, capture=True, **hosts)
    check(code == 0 and out.count("right") == 3, code, out, err)


# What a stranger knows: all that is public, and that there is a store. It tries each port as torch's client does, and by hand.
STRANGER = """
import json, socket, sys
from datetime import timedelta
import torch.distributed as dist
believed, there = [], 0
for address, port in json.loads(sys.argv[1]):
    for said in (b'', b'\\0' * 64, b'GET / HTTP/1.0\\r\\n\\r\\n'):
        with socket.socket() as s:
            s.settimeout(2)
            try: s.connect((address, port)); there += 1; s.sendall(said)
            except OSError: pass
    try:
        store = dist.TCPStore(address, port, None, False, timedelta(seconds=2), wait_for_workers=False)
        for key in ('word', 'default_pg/0//word', 'default_pg/0/word'): store.set(key, 'changed'); store.add('strange', 1)
        believed.append((port, store.num_keys()))
    except Exception: pass
print(json.dumps([there, believed]))
"""

MEMBER = HEAD + """
if rank == 0: store.set('word', 'said')
assert store.get('word') == b'said'
before = store.num_keys()
print('ready', flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
dist.barrier()
store.wait(['word'], timedelta(seconds=100))
assert store.get('word') == b'said' and store.num_keys() == before, (store.get('word'), before, store.num_keys())
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2.0] * 3
dist.destroy_process_group()
print('right')
"""


def make_spaces(names):
    """Three hosts on one bridge."""
    good = all(ip("netns", "add", n) and ip("-n", n, "link", "set", "lo", "up") for n in names)
    good = good and ip("-n", names[0], "link", "add", "br0", "type", "bridge") and ip("-n", names[0], "link", "set", "br0", "up") and \
        ip("-n", names[0], "addr", "add", f"{NETWORK}.1/24", "dev", "br0")
    for i in (1, 2):
        good = good and ip("-n", names[0], "link", "add", f"b{i}", "type", "veth", "peer", "name", "e0", "netns", names[i]) and \
            ip("-n", names[0], "link", "set", f"b{i}", "master", "br0", "up") and ip("-n", names[i], "link", "set", "e0", "up") and \
            ip("-n", names[i], "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "e0")
    return good


def within(space, program, *words, **env):
    return subprocess.Popen(["ip", "netns", "exec", space, sys.executable, "-c", program, *words], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env={**os.environ, **env})


def listening(space, process):
    """The TCP ports at which the process listens in its namespace."""
    mine, ports = inodes(process.pid), set()
    for name in ("tcp", "tcp6"):
        rows = subprocess.run(["ip", "netns", "exec", space, "cat", f"/proc/net/{name}"], capture_output=True, text=True).stdout
        ports |= {int(w[1].rsplit(":", 1)[1], 16) for w in (row.split() for row in rows.splitlines()[1:]) if w[3] == "0A" and int(w[9]) in mine}
    return ports


def strangers():
    """A process of a third namespace tries all ports at which a job of two listens."""
    why = missing()
    names = [f"coll-store-{os.getpid()}-{i}" for i in range(3)]
    ranks = []
    try:
        if why or not make_spaces(names):
            print(f"skip strangers: {why or 'no namespaces can be made'}")
            return
        stop = os.path.join(tempfile.mkdtemp(prefix="coll-store-"), "stop")
        job = {"COLL_ROOT": f"{NETWORK}.1:{PORT}", "COLL_JOB_KEY": secrets.token_hex(16), "COLL_SIZE": "2", "COLL_LOCAL_SIZE": "1",
               "COLL_LOCAL_RANK": "0", "COLL_CREATE_TIMEOUT_MS": "200000"}
        ranks += [within(names[r], MEMBER, stop, COLL_RANK=str(r), COLL_HOST_ID=f"host-{r}", **job) for r in range(2)]
        for r in ranks:
            said = []
            while (line := r.stdout.readline()) not in ("ready\n", ""):
                said.append(line)
            check(line, "it has ended", said)
        ports = [(f"{NETWORK}.{i + 1}", p) for i, r in enumerate(ranks) for p in sorted(listening(names[i], r))]
        check(len({a for a, _ in ports}) == 2, "both hosts listen", ports)
        stranger = within(names[2], STRANGER, json.dumps(ports))
        said = stranger.communicate(timeout=LIMIT_S)[0]
        there, believed = json.loads(said.splitlines()[-1])
        with open(stop, "w"):
            pass
        ended = [r.communicate(timeout=LIMIT_S)[0] for r in ranks]
        print(f"{len(ports)} ports, {there} connections, believed at {believed}")
        check(not believed, "the store of a stranger", believed, ports)
        check(there >= 3, "ports can be reached", there, ports)
        check(all(r.returncode == 0 for r in ranks) and all("right" in e for e in ended), ended)
    finally:
        for r in ranks:
            if r.poll() is None:
                r.kill()
            r.wait()
        for n in names:
            ip("netns", "del", n)


def main():
    if not forked.preload("coll.torch", "torch._dynamo"):
        print(f"skipped: {sys.executable} has no torch")
        return forked.SKIPPED
    return forked.cases([calls, strangers], sys.argv[1:], talk=True)


forked.top(main)
