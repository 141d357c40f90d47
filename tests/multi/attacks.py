#!/usr/bin/env python3
"""Strangers who know everything public about a job, against jobs of one host and of two (network namespaces): another user of
the host, and a process in a third namespace. They compute keys from public words, guess them, and forge messages with them;
bind names and make files that they can compute before the job starts; run a rank of their own; send again what they
recorded; and open connections without end, silent, slow, with garbage and with half a handshake. The job must not notice:
it ends well, nobody joins, a late rank joins as soon as without them, and memory does not grow. Root, `ip`, a user `nobody`.

usage: attacks.py BUILD-DIRECTORY [CONNECTIONS [CASE...]]       (default 600; in full 10000)"""
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Report, abstract_names, alive, inodes, kill_all, now, starved, until  # noqa: E402
from wires import ip, missing  # noqa: E402

NOBODY, NETWORK, PREFIX = 65534, "10.94", f"coll-attacks-{os.getpid()}-"
RUN, COUNT = "none", "1024"
# Of this program alone, since others run beside it; told to strangers.
PORT = int(os.environ.get("ATTACKS_PORT", 29471 + os.getpid() % 500))
KINDS = ("silent", "slow", "garbage", "half")
MEMORY_MB, LATE_S = 20 if "ASAN_OPTIONS" in os.environ else 10, 1.0
# Memory that is freed has not grown: AddressSanitizer keeps it for long, and has more around each block.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
MASK = (1 << 64) - 1

# ---- What anybody can compute: the hashes of src/base, and keys from public words ----


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & MASK
    return x ^ x >> 31


def hash_bytes(seed, data):
    h = 0xcbf29ce484222325 ^ mix(seed)
    for c in data:
        h = ((h ^ c) * 0x100000001b3) & MASK
    return mix(h)


def siphash(key, data, wide):
    """SipHash-2-4 of 64 bits, or of 128."""
    v = [key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ (0xee if wide else 0), key[0] ^ 0x6c7967656e657261,
         key[1] ^ 0x7465646279746573]

    def turn(x, by):
        return ((x << by) | (x >> (64 - by))) & MASK

    def rounds(n):
        for _ in range(n):
            v[0], v[2] = (v[0] + v[1]) & MASK, (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = turn(v[0], 32)
            v[2], v[0] = (v[2] + v[1]) & MASK, (v[0] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    whole = len(data) & ~7
    for m in [int.from_bytes(data[i:i + 8], "little") for i in range(0, whole, 8)] + \
            [((len(data) & 255) << 56) | int.from_bytes(data[whole:], "little")]:
        v[3] ^= m
        rounds(2)
        v[0] ^= m
    v[2] ^= 0xee if wide else 0xff
    rounds(4)
    out = struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    if wide:
        v[1] ^= 0xdd
        rounds(4)
        out += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return out


def key_of(text):
    return tuple(hash_bytes(i, text.encode()) | 1 for i in (1, 2))


def public_words(address):
    return [f"torchrun|{address}|{PORT}|{RUN}", f"torchrun|{address}|{PORT}|", "srun|7|0", f"{address}:{PORT}"]


# ---- The stranger: a process of its own ----


def enter(door, seconds=1.0):
    s = socket.socket(socket.AF_INET if door[0] == "tcp" else socket.AF_UNIX, socket.SOCK_STREAM if door[0] == "tcp" else door[2])
    s.settimeout(seconds)
    try:
        s.connect((door[1], door[2]) if door[0] == "tcp" else "\0" + door[1])
        return s
    except OSError:
        s.close()
        return None


def hear_some(s):
    try:
        return s.recv(4096)
    except OSError:
        return b""


CONTROL_MAGIC, CHALLENGE, HELLO, WELCOME, NOTE, TRIES = 0x434f4c4c, 1, 2, 3, 4, 500


def hello_to(said, key, wide, me, to, rank, size):
    """The message that answers a challenge: in the format of that length."""
    magic, version = struct.unpack_from("<IH", said)
    if len(said) == 328:  # identities travel
        nonce = struct.unpack_from("<QQ", said, 40)
        proof = siphash(key, struct.pack("<7Q", *nonce, *me, *to, 1), wide)
        body = struct.pack("<6Q", *me, *to, 1, 2) + proof + struct.pack("<ii", rank, size)
    else:
        nonce = struct.unpack_from("<QQ", said, 8)
        proof = siphash(key, struct.pack("<10Q", 2, *me, *to, *nonce, 1, 2, size), True)
        body = struct.pack("<QQ", 1, 2) + proof + struct.pack("<ii", rank, 0)
    return (struct.pack("<IHH", magic, version, HELLO) + body).ljust(len(said), b"\0")


def challenge_of(door):
    """A connection and what is said there first; None where that is no challenge of the control plane."""
    s = enter(door, 0.5)
    said = hear_some(s) if s else b""
    if len(said) >= 300 and struct.unpack_from("<IHH", said)[::2] == (CONTROL_MAGIC, CHALLENGE):
        return s, said
    if s:
        s.close()
    return None, b""


def is_believed(door, *how):
    """Whether that proof is taken; then a death is reported as well."""
    s, said = challenge_of(door)
    if not s:
        return False
    try:
        s.sendall(hello_to(said, *how))
        good = struct.unpack_from("<IHH", hear_some(s).ljust(8, b"\0"))[2] == WELCOME
        if good:
            note = struct.pack("<IiiiQQ", 1, 20, how[4], how[4], 0, 0) + b"forged by a stranger\0"
            s.sendall((said[:6] + struct.pack("<H", NOTE) + note).ljust(len(said), b"\0"))
        return good
    except OSError:
        return False
    finally:
        s.close()


def forge(found, size, keys):
    """Prove each key at each control port as each rank, and say there that another rank has died. How often it was believed,
    and how often that was tried."""
    names, ports = [], {}
    for door in found:
        s, said = challenge_of(door)
        if s:
            ports[door] = struct.unpack_from("<QQ", said, 8) if len(said) == 328 else (0, 0)
            s.close()
        if door[0] == "unix" and len(door[1]) == 37 and door[1].startswith("coll-"):
            names.append((int(door[1][5:21], 16), int(door[1][21:], 16)))
    names = list(dict.fromkeys([n for n in list(ports.values()) + names if n != (0, 0)])) or [(1, 2), (3, 4)]
    tries = [(door, k, w, me, to, r, size) for door, told in ports.items() for to in ([told] if told != (0, 0) else names)
             for me in names if me != to for r in range(size) for k in keys for w in (False, True)]
    for i, t in enumerate(tries[:TRIES]):
        if is_believed(*t):
            return 1, i + 1
    return 0, min(len(tries), TRIES)


def squat(address, uid):
    """Bind the names and make the files that follow from public words; what is bound is kept."""
    kept, files = [socket.create_server((address, PORT))], []
    for text in public_words(address):
        full = f"{text}|uid {uid}".encode()
        name = "coll-%016x%016x" % (hash_bytes(3, full), hash_bytes(4, full))
        words = "%016x%016x" % (hash_bytes(3, text.encode()), hash_bytes(4, text.encode()))
        words = f"loopback {PORT}" if text.endswith(f":{PORT}") else words
        usual = "libcoll-meet-%016x" % hash_bytes(3, f"{words}|uid {uid}".encode())
        s = socket.socket(socket.AF_UNIX)
        try:
            s.bind("\0" + name)
            s.listen(64)
            kept.append(s)
        except OSError:
            pass
        for i, folder in enumerate(("/dev/shm", "/tmp")):
            path = os.path.join(folder, usual)
            try:
                if i == 0:
                    os.mkfifo(path, 0o666)
                else:
                    with open(path, "w") as f:
                        f.write("0 0 %37s\n" % name)
                files.append(path)
            except OSError:
                pass
    return kept, files


def flood(found, count, recorded, seconds=60):
    """count connections over the doors, of all kinds. Those that got in; the silent and the slow are held."""
    held, inside, rubbish, end = [], 0, os.urandom(400), now() + seconds
    for i in range(count):
        kind, door = KINDS[i // len(found) % len(KINDS)], found[i % len(found)]
        s = enter(door, 0.3)
        if not s or now() > end:
            continue
        inside += 1
        try:
            s.setblocking(False)
            if kind == "garbage":
                s.send(rubbish)
            elif kind == "half":
                s.send((recorded[i % len(recorded)] if recorded else rubbish[:48])[:24])
            elif kind == "slow":
                s.send(rubbish[:1])
        except OSError:
            pass
        if kind in ("silent", "slow") and len(held) < 800:
            held.append(s)
        else:
            s.close()
    return inside, held


def replay(found, recorded):
    """What others said is said again, whole, and in the pieces of a handshake. How often there was more than a first answer."""
    answers = 0
    for door in [d for d in found if d[0] == "tcp"]:
        for said in recorded[:20]:
            s = enter(door, 0.3)
            if not s:
                continue
            try:
                s.settimeout(0.05)
                first = hear_some(s)
                s.sendall(said)
                answers += len(hear_some(s)) > 200 and bool(first)
            except OSError:
                pass
            s.close()
    return answers


def join(program, address, rank, size, stop, extra, variables=None):
    """A rank of the stranger's own, with the variables of a launcher or torchrun's."""
    torchrun = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(PORT), "TORCHELASTIC_RUN_ID": RUN}
    env = {"PATH": "/usr/bin:/bin", "COLL_CREATE_TIMEOUT_MS": "1500", "COLL_INSECURE": "1", **(variables or torchrun), **extra}
    return subprocess.Popen([program, "0", COUNT, stop], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stranger(order):
    """One line of JSON on standard output for each order, until standard input ends."""
    kept = []
    files = []
    for line in sys.stdin:
        o = json.loads(line)
        found = [tuple(d) for d in o.get("doors", [])]
        out = {}
        if o["do"] == "squat":
            sockets, files = squat(order["address"], 0)
            kept += sockets
            out["names"], out["files"] = len(sockets), len(files)
        elif o["do"] == "forge":
            keys = [key_of(w) for w in public_words(order["address"])] + [(0, 0), (1, 1), (1, 0)]
            out["believed"], out["tries"] = forge(found, order["size"], keys)
        elif o["do"] == "flood":
            out["inside"], held = flood(found, o["count"], [bytes.fromhex(x) for x in o.get("recorded", [])])
            kept += held
        elif o["do"] == "replay":
            out["answered"] = replay(found, [bytes.fromhex(x) for x in o["recorded"]])
        elif o["do"] == "join":
            p = join(order["program"], order["address"], o["rank"], order["size"], order["stop"], o.get("extra", {}), o.get("env"))
            try:
                said = p.communicate(timeout=o.get("seconds", 8))[0]
            except subprocess.TimeoutExpired:
                p.kill()
                said = p.communicate()[0]
            out["joined"] = any(x.startswith(("running", f"error {o['rank']} ")) for x in said.splitlines())
            out["said"] = said[-300:]
        print(json.dumps(out), flush=True)
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a job has cleaned up
            os.unlink(path)


class Stranger:
    def __init__(self, place, address, size, space=None):
        order = {"address": address, "size": size, "program": f"{place}/rank", "stop": f"{place}/stop"}
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        words = [python, f"{place}/attacks.py", "--stranger", json.dumps(order)]
        self.process = subprocess.Popen((["ip", "netns", "exec", space] if space else []) +
                                        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] + words,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
                                        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ATTACKS_PORT": str(PORT)})

    def begin(self, what, **more):
        print(json.dumps({"do": what, **more}), file=self.process.stdin, flush=True)

    def result(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ended": True}

    def do(self, what, **more):
        self.begin(what, **more)
        return self.result()

    def end(self):
        self.process.stdin.close()
        if not until(lambda: self.process.poll() is not None, 5):
            self.process.kill()
        self.process.wait()


# ---- The job ----


class Job:
    """Ranks of allreduce_loop with the variables of a launcher; spaces: one for each host, None for this one."""
    count = 0

    def __init__(self, place, size, address, spaces=(None,), launcher="torchrun", **settings):
        self.launcher, self.place, self.size, self.address, self.spaces, self.settings = launcher, place, size, address, spaces, settings
        self.ranks, self.lines = {}, {}
        Job.count += 1
        self.stop = f"{place}/stop-{Job.count}"

    def variables(self, rank, here):
        if self.launcher == "srun":
            return {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % here),
                    "SLURM_STEP_NUM_TASKS": str(self.size), "SLURM_STEP_NUM_NODES": str(len(self.spaces))}
        if self.launcher == "by hand":
            return {"COLL_RANK": str(rank), "COLL_SIZE": str(self.size), "COLL_ROOT": f"{self.address}:{PORT}"}
        return {"RANK": str(rank), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(rank % here), "LOCAL_WORLD_SIZE": str(here),
                "MASTER_ADDR": self.address, "MASTER_PORT": str(PORT), "TORCHELASTIC_RUN_ID": RUN}

    def start(self, rank):
        space = self.spaces[rank * len(self.spaces) // self.size]
        here = self.size // len(self.spaces)
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update(self.variables(rank, here), COLL_DEBUG="warn", **{"COLL_CREATE_TIMEOUT_MS": "25000", **self.settings})
        p = subprocess.Popen((["ip", "netns", "exec", space] if space else []) + [f"{self.place}/rank", "0", COUNT, self.stop],
                             env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.ranks[rank], self.lines[rank] = p, []
        p.reader = threading.Thread(target=lambda: [self.lines[rank].append(x.rstrip()) for x in p.stdout], daemon=True)
        p.reader.start()

    def has(self, rank, word):
        return any(x.startswith(word) for x in self.lines[rank])

    def running(self, ranks=None, seconds=30):
        ranks = range(self.size) if ranks is None else ranks
        return until(lambda: all(self.has(r, "running") or self.ranks[r].poll() is not None for r in ranks), seconds) and \
            all(self.has(r, "running") for r in ranks)

    def pids(self):
        return [p.pid for p in self.ranks.values()]

    def memory_mb(self):
        total = []
        for pid in self.pids():
            with open(f"/proc/{pid}/status") as f:
                total += [int(x.split()[1]) / 1024 for x in f if x.startswith("VmRSS")]
        return max(total, default=0)

    def doors(self, space, address):
        """What the job listens at on one host, which /proc/net tells everybody: TCP ports, and here abstract names."""
        mine = set().union(*(inodes(p) for p in self.pids()))
        found = []
        for name in ("tcp", "tcp6"):
            r = subprocess.run((["ip", "netns", "exec", space] if space else []) + ["cat", "/proc/net/" + name],
                               capture_output=True, text=True).stdout
            found += [("tcp", address, int(w[1].rsplit(":", 1)[1], 16)) for w in (x.split() for x in r.splitlines()[1:])
                      if w[3] == "0A" and int(w[9]) in mine]
        names = [] if space else [("unix", *at) for inode, at in abstract_names().items() if inode in mine]
        return sorted(set(found)) + names

    def finish(self):
        """What is wrong with its end."""
        faults = [f"rank {r} has ended: {self.lines[r][-1:]}" for r, p in self.ranks.items() if p.poll() is not None]
        open(self.stop, "w").close()
        if not faults and not until(lambda: all(p.poll() is not None for p in self.ranks.values()), 30):
            faults.append("it does not end")
        faults += [f"rank {r}: status {p.poll()}, {self.lines[r][-1:]}" for r, p in self.ranks.items() if p.poll() and not faults]
        return faults

    def end(self):
        kill_all([p for p in self.pids() if alive(p)])
        for p in self.ranks.values():
            p.wait()
            p.reader.join(5)


RECORDER = """
import socket, struct, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
s.settimeout(0.2)
print("ready", flush=True)
end, heard = time.time() + float(sys.argv[1]), {}
while time.time() < end and len(heard) < 60:
    try:
        d = s.recv(65536)
    except OSError:
        continue
    n = (d[0] & 15) * 4
    if d[9] == 6 and len(d) >= n + 20:
        data = d[n + (d[n + 12] >> 4) * 4:struct.unpack(">H", d[2:4])[0]]
        key = (d[12:20], d[n:n + 4])
        if data and len(heard.get(key, b"")) < 400:
            heard[key] = heard.get(key, b"") + data[:400]
for data in heard.values():
    print(data.hex())
"""


def recorder(space, seconds):
    p = subprocess.Popen(["ip", "netns", "exec", space, sys.executable, "-c", RECORDER, str(seconds)], stdout=subprocess.PIPE,
                         text=True)
    p.stdout.readline()
    return p


# ---- Cases ----


def joins(s, rank, local, here):
    return s.do("join", rank=rank, seconds=5, extra={"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(here)})


def squatted(place, launcher):
    """What ranks of one host could meet by is taken by another user before they begin, who also comes as rank 2."""
    faults, job, s = [], Job(place, 3, "127.0.0.1", launcher=launcher, COLL_CREATE_TIMEOUT_MS="8000"), Stranger(place, "127.0.0.1", 3)
    try:
        taken = s.do("squat")
        for r in range(2):
            job.start(r)
        early = joins(s, 2, 2, 3)
        job.start(2)
        faults += ["JOIN: another user was taken for rank 2"] if early.get("joined") else []
        faults += [] if job.running() else [f"SQUAT: the job does not start, {taken}"]
        print(f"     squatted: {taken}")
        faults += job.finish()
    finally:
        s.end()
        job.end()
    return faults


def on_one_host(place, count, launcher):
    """A job that runs in shared memory: forged messages, and a flood, at whatever listens."""
    faults, job, s = [], Job(place, 3, "127.0.0.1", launcher=launcher), Stranger(place, "127.0.0.1", 3)
    try:
        for r in range(3):
            job.start(r)
        faults += [] if job.running() else ["the job does not start"]
        found, before = job.doors(None, "127.0.0.1"), job.memory_mb()
        ports = [d for d in found if d[0] == "tcp"]
        forged, flooded = s.do("forge", doors=found), s.do("flood", count=count, doors=found) if found else {}
        grown = job.memory_mb() - before if all(p.poll() is None for p in job.ranks.values()) else 0
        print(f"     one host: {len(ports)} TCP ports of the ranks, forged {forged}, flood {flooded}, memory + {grown:.1f} MB")
        faults += ["FORGE: a message with a computed key was believed"] if forged.get("believed") else []
        faults += [f"FLOOD: {grown:.1f} MB more"] if grown > MEMORY_MB else []
        faults += job.finish()
    finally:
        s.end()
        job.end()
    return faults


def without_a_secret(place, spaces, third, forged):
    """Two hosts, and nothing that others do not know: it refuses to start, or nobody gets in, by a rank or by a message."""
    address, faults = f"{NETWORK}.0.1", []
    job, s = Job(place, 4, address, spaces, COLL_CREATE_TIMEOUT_MS="8000"), Stranger(place, address, 4, third)
    try:
        for r in range(4 if forged else 3):
            job.start(r)
        until(lambda: any(p.poll() is not None for p in job.ranks.values()), 1)
        said = {} if forged else joins(s, 3, 1, 2)
        faults += ["JOIN: a process in another namespace became rank 3"] if said.get("joined") else []
        refused = [r for r, p in job.ranks.items() if p.poll() is not None]
        if refused:
            print(f"     ranks {refused} have ended: {job.lines[refused[0]][-1:]}")
        elif not faults:
            if not forged:
                job.start(3)
            faults += [] if job.running() else ["the job does not start"]
            believed = s.do("forge", doors=job.doors(spaces[0], address)).get("believed")
            faults += ["FORGE: a message with a computed key was believed"] if believed else []
            faults += job.finish()
    finally:
        s.end()
        job.end()
    return faults


def late_rank_s(job):
    begun = now()
    job.start(job.size - 1)
    ok = job.running([job.size - 1])
    return (now() - begun - starved(begun, now())) if ok else None


def on_two_hosts(place, spaces, third, count):
    """Eight ranks with a secret. Recorded, flooded while they create, forged, replayed, flooded again."""
    address, faults, secret = f"{NETWORK}.0.1", [], os.urandom(16).hex()
    quiet = Job(place, 8, address, spaces, COLL_JOB_KEY=secret)
    tape = recorder(spaces[1], 2.5)
    try:
        for r in range(7):
            quiet.start(r)
        until(lambda: False, 0.5)
        alone = late_rank_s(quiet)
        faults += [] if alone else ["the job does not start without strangers"]
        recorded = [x for x in tape.communicate()[0].split() if len(x) > 40]
        faults += quiet.finish()
    finally:
        quiet.end()
    if faults:
        return faults
    job, s = Job(place, 8, address, spaces, COLL_JOB_KEY=secret), Stranger(place, address, 8, third)
    try:
        for r in range(7):
            job.start(r)
        until(lambda: job.doors(spaces[0], address), 10)
        s.begin("flood", count=count // 2, doors=job.doors(spaces[0], address), recorded=recorded)
        until(lambda: False, 0.5)
        late = late_rank_s(job)
        first = s.result()
        if late is None or late > alone + LATE_S:
            faults.append(f"DELAY: the late rank joined after {late} s, {alone:.2f} s without strangers")
        ports = job.doors(spaces[0], address) + job.doors(spaces[1], f"{NETWORK}.0.2")
        before = job.memory_mb()
        forged, again = s.do("forge", doors=ports[:6]), s.do("replay", doors=ports, recorded=recorded)
        second = s.do("flood", count=count, doors=ports, recorded=recorded) if ports else {}
        grown = job.memory_mb() - before
        print(f"     two hosts: {len(ports)} ports, late rank after {late or 99:.2f} s ({alone:.2f} s alone), flood while creating {first}, "
              f"running {second}, forged {forged}, {len(recorded)} recorded, replay {again}, memory + {grown:.1f} MB")
        faults += ["FORGE: a message with a computed key was believed"] if forged.get("believed") else []
        faults += ["REPLAY: what was recorded was believed"] if again.get("answered") else []
        faults += [f"FLOOD: {grown:.1f} MB more"] if grown > MEMORY_MB else []
        faults += [f"only {second} of {count} connections got in"] if ports and second.get("inside", 0) < count / 2 else []
        faults += job.finish()
    finally:
        s.end()
        job.end()
    return faults


def port_taken(place, spaces):
    """Another user of rank 0's host has the port of COLL_ROOT, and says nothing there. With a secret the job starts; without
    one it is refused, and the holder is named."""
    address, faults = f"{NETWORK}.0.1", []
    with_secret = {"COLL_JOB_KEY": os.urandom(16).hex()}
    for settings in with_secret, {"COLL_INSECURE": "1"}:
        job, s = Job(place, 4, address, spaces, "by hand", COLL_CREATE_TIMEOUT_MS="12000", **settings), Stranger(place, address, 4, spaces[0])
        try:
            s.do("squat")
            for r in range(4):
                job.start(r)
            if settings is with_secret:
                faults += [] if job.running() else [f"SQUAT: the job does not start: {job.lines}"]
                faults += job.finish()
            elif not until(lambda: any(f"user {NOBODY}" in x for x in job.lines[0]), 20):
                faults.append(f"SQUAT: rank 0 does not name the holder: {job.lines[0]}")
        finally:
            s.end()
            job.end()
    return faults


def make_spaces():
    """Three hosts on one bridge; the third is the stranger's."""
    names = [PREFIX + str(i) for i in range(3)]
    good = all(ip("netns", "add", n) and ip("-n", n, "link", "set", "lo", "up") for n in names)
    good = good and ip("-n", names[0], "link", "add", "br0", "type", "bridge") and ip("-n", names[0], "link", "set", "br0", "up") and \
        ip("-n", names[0], "addr", "add", f"{NETWORK}.0.1/24", "dev", "br0")
    for i in (1, 2):
        good = good and ip("-n", names[0], "link", "add", f"b{i}", "type", "veth", "peer", "name", "e0", "netns", names[i]) and \
            ip("-n", names[0], "link", "set", f"b{i}", "master", "br0", "up") and ip("-n", names[i], "link", "set", "e0", "up") and \
            ip("-n", names[i], "addr", "add", f"{NETWORK}.0.{i + 1}/24", "dev", "e0")
    return names, good


def prepare(build):
    """A folder of what the stranger runs."""
    place = tempfile.mkdtemp(prefix="coll-attacks-")
    os.chmod(place, 0o755)
    here = os.path.dirname(os.path.abspath(__file__))
    for f in ("attacks.py", "job.py", "wires.py"):
        shutil.copy(os.path.join(here, f), place)
    shutil.copy(f"{build}/tests/allreduce_loop", f"{place}/rank")
    os.chmod(f"{place}/rank", 0o755)
    return place


def main():
    if sys.argv[1] == "--stranger":
        return stranger(json.loads(sys.argv[2]))
    build, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600
    why = missing("setpriv")
    names, good = ([], False) if why else make_spaces()
    place = prepare(build)
    report, cases = Report(), {
        **{f"{what}, {w}": lambda do=do, w=w: do(w) for w in ("torchrun", "srun", "by hand") for what, do in
           (("names taken before", lambda w: squatted(place, w)), ("one host", lambda w: on_one_host(place, count, w)))},
        "two hosts without a secret, a rank too many": lambda: without_a_secret(place, names[:2], names[2], False),
        "two hosts without a secret, forged": lambda: without_a_secret(place, names[:2], names[2], True),
        "two hosts, the port taken before": lambda: port_taken(place, names[:2]),
        "two hosts with a secret": lambda: on_two_hosts(place, names[:2], names[2], count),
    }
    try:
        if why or not good:
            print(f"skip attacks: {why or 'cannot make namespaces on a bridge'}\n0 passed, 0 failed, 1 skipped")
            return 77
        for name, run in cases.items():
            if not sys.argv[3:] or name in sys.argv[3:]:
                report.case(name, run())
        return report.close()
    finally:
        for n in names:
            ip("netns", "del", n)
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
