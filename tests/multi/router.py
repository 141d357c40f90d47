"""A router between two network namespaces that flips bits: two tun devices, and a thread that hands their packets over. Like
a broken one it puts the TCP checksum right behind the change. Needs root, `ip` and /dev/net/tun."""
import fcntl
import os
import random
import select
import struct
import threading

from wires import ip

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
MTU, LONGEST = 9000, 9216
HELLO = b"loc1"  # how a data connection of the library begins


def tun(name, space):
    """Descriptor of a tun device in this namespace. A device stays where it was made."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{space}") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)
    return fd


class Router:
    """Side i has the address NETWORK.(1 + i). good: it could be made."""

    def __init__(self, network, seed):
        self.network, self.rng = network, random.Random(seed)
        self.names = [f"coll-router-{os.getpid()}-{i}" for i in range(2)]
        self.data, self.armed, self.flipped, self.over = set(), None, 0, False
        self.fds = []
        self.good = all(ip("netns", "add", n) and ip("-n", n, "link", "set", "lo", "up") for n in self.names)
        try:
            self.fds = [tun("r0", n) for n in self.names] if self.good else []
        except OSError:
            self.good = False
        self.good = self.good and all(
            ip("-n", n, "addr", "add", f"{self.address(i)}/24", "dev", "r0") and
            ip("-n", n, "link", "set", "r0", "mtu", str(MTU), "txqueuelen", "4000", "up") for i, n in enumerate(self.names))
        self.thread = threading.Thread(target=self.relay, daemon=True)
        if self.good:
            self.thread.start()

    def address(self, side):
        return f"{self.network}.{1 + side}"

    def flip(self, way):
        """One bit of the next packet of a data connection that leaves that side."""
        self.armed = way

    def relay(self):
        while not self.over:
            for fd in select.select(self.fds, [], [], 0.2)[0]:
                way = self.fds.index(fd)
                for _ in range(64):
                    try:
                        packet = os.read(fd, LONGEST)
                        os.write(self.fds[1 - way], self.changed(packet, way))
                    except (BlockingIOError, OSError):
                        break

    def changed(self, packet, way):
        head = (packet[0] & 15) * 4
        if packet[0] >> 4 != 4 or packet[9] != 6:
            return packet
        begin = head + (packet[head + 12] >> 4) * 4
        end = struct.unpack_from("!H", packet, 2)[0]
        ends = frozenset((packet[12:16] + packet[head:head + 2], packet[16:20] + packet[head + 2:head + 4]))
        if packet[begin:begin + 4] == HELLO:
            self.data.add(ends)
            return packet
        if self.armed != way or end <= begin or ends not in self.data:
            return packet
        self.armed = None
        self.flipped += 1
        return flipped(packet, head, self.rng.randrange(begin, end), self.rng.randrange(8))

    def close(self):
        self.over = True
        if self.good:
            self.thread.join()
        for fd in self.fds:
            os.close(fd)
        for n in self.names:
            ip("netns", "del", n)


def flipped(packet, head, at, bit):
    """The packet with one bit changed and the checksum put right (RFC 1624)."""
    changed = bytearray(packet) + b"\0"
    word = head + (at - head) // 2 * 2
    before = struct.unpack_from("!H", changed, word)[0]
    changed[at] ^= 1 << bit
    after = struct.unpack_from("!H", changed, word)[0]
    total = (~struct.unpack_from("!H", changed, head + 16)[0] & 0xffff) + (~before & 0xffff) + after
    total = (total & 0xffff) + (total >> 16)
    total = (total & 0xffff) + (total >> 16)
    struct.pack_into("!H", changed, head + 16, ~total & 0xffff)
    return bytes(changed[:-1])
