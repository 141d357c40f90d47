#!/usr/bin/env python3
"""The order of the folders: who may include whom, who may call whom, and that each header declares only what the file of
its name defines. Reads the includes of the sources and the symbols of the compiled objects.

usage: layers.py SOURCE_ROOT BUILD_ROOT PLANTED_OBJECT"""
import collections
import json
import os
import re
import subprocess
import sys

# From the bottom up. A folder may include and call folders of lower levels, and nothing else of its own level.
LEVELS = [["base"], ["net", "transport"], ["reduce"], ["device"], ["plan", "transports/common", "topology"],
          ["transports/hook", "transports/loop", "transports/shm", "transports/tcp", "transports/rdma"], ["transports", "record", "proof"],
          ["engine", "algos", "bootstrap", "control"], ["intra", "context"], ["core"],
          ["select", "watch", "inspect", "members"], ["match", "inflight"], ["call"], ["devcall"], ["comm"], ["api"]]
LEVEL = {name: i for i, level in enumerate(LEVELS) for name in level}
# Narrower than the levels: what these may see beside themselves and the public headers.
ONLY = {
    "algos": re.compile(r"^plan/build\.h$"),
    "transports/common": re.compile(r"^(base|net|transport)/"),
    **{name: re.compile(r"^(base|net|transport|transports/common)/") for level in LEVELS for name in level
       if name.startswith("transports/") and name != "transports/common"},
    "topology": re.compile(r"^base/"),
    "bootstrap": re.compile(r"^base/|^net/listen\.h$"),
    "sim": re.compile(r"^(base|net|reduce|plan|algos|engine|transport|transports|record|tests)/"),
    # Control planes and the agreement of members, as the library has them, on the simulated network.
    "sim/faults": re.compile(r"^(base|net|sim|control|members|tests)/|^core/comm\.h$"),
    "gpt": re.compile(r"^$"),
    "ddp": re.compile(r"^base/sized\.h$"),
    # The driver and its devices, the state of a communicator that a watchdog reads, the end of a group that was refused, unused ids, and
    # factors: the rest is public.
    "compat": re.compile(r"^(base/.*|device/(cuda|cuda_load|device)\.h|(inflight/drive|call/group)\.h|bootstrap/id\.h|core/ops\.h)$"),
    "examples": re.compile(r"^(gpt|ddp)/"),
}
# Callbacks that an upper folder registers through a struct that a lower one declares. A call through one of them is no
# upward call: the lower folder names neither the function nor its file.
CALLBACKS = {
    "src/context/context.h": ["coll_context_hooks"],
    "src/context/service.h": ["coll_service_client"],
    "src/control/control.h": ["coll_control_env"],
    "src/core/device_facts.h": ["coll_device_facts"],
    "src/engine/engine.h": ["coll_fabric", "coll_intra_op"],
    "src/inflight/async.h": ["coll_device_driver"],
    "src/inflight/kind.h": ["coll_request_kind"],
    "src/intra/intra.h": ["coll_intra_fabric"],
    "src/net/net.h": ["coll_net"],
    "src/transport/transport.h": ["coll_transport", "coll_transport_env"],
    "src/transport/transport_shared.h": ["coll_transport_shared"],
}
# These make their calls of the system through the table of src/net, so that a simulator can stand in for the network.
THROUGH_NET = re.compile(r"^src/(control|context)/|^src/(inflight|call)/(thread|wait)\.c$")
SYSTEM = {"socket", "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "getsockopt", "setsockopt", "send",
          "recv", "sendmsg", "recvmsg", "getifaddrs", "freeifaddrs", "epoll_create1", "epoll_ctl", "epoll_wait", "poll",
          "ppoll", "eventfd", "timerfd_create", "timerfd_settime", "read", "sched_yield", "nanosleep",
          "usleep", "pthread_create", "pthread_join", "getrandom"}
# The largest part of src/ that one folder may hold.
LARGEST = 0.20
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def folder(path):
    """Each folder of src/ and of transports/ counts by itself; what lies in transports/ directly is the registry."""
    parts = path.split("/")
    if parts[0] == "transports" and len(parts) > 2:
        return "/".join(parts[:2])
    if path.startswith("sim/faults/"):
        return "sim/faults"
    return parts[1] if parts[0] == "src" else parts[0]


def folder_of_include(target):
    return folder(target) if target.startswith("transports/") else target.split("/")[0]


def library(path):
    return path.startswith(("src/", "transports/", "topology/"))


def is_test(path):
    return path.endswith(("_test.c", "_test.h"))


def may(here, there):
    return here == there or LEVEL[there] < LEVEL[here]


def check_includes(paths, bad, stands_in=None):
    seen = 0
    for path in paths:
        here = stands_in or folder(path)
        if is_test(path) or here not in LEVEL and here not in ONLY:
            continue
        for target in INCLUDE.findall(open(path).read()):
            if "/" not in target or target.startswith("coll/"):
                continue
            seen += 1
            top = folder_of_include(target)
            if top == here:
                continue
            fine = ONLY[here].match(target) if here in ONLY else top in LEVEL and may(here, top)
            if not fine:
                bad.append(f"{path}: {here} may not include {target}")
    return seen


def symbols(build, commands, root):
    """What each library object defines and uses: {source: (defined, used)}."""
    found = {}
    for c in commands:
        output = c["output"]
        if not output.startswith(("libcoll_core", "src/proof/libcoll_proof")) and "coll_reduce" not in output:
            continue
        source = os.path.relpath(os.path.join(c["directory"], c["file"]), root)
        found[source] = read_symbols(os.path.join(build, output))
    return found


def read_symbols(path):
    defined, used = set(), set()
    for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
        fields = line.split()
        if len(fields) < 2:
            continue
        kind, name = fields[-2:]
        if kind == "U":
            used.add(name)
        elif kind in "TWDBRVCG":
            defined.add(name)
    return defined, used


def owners(objects):
    return {name: source for source, (defined, _) in objects.items() for name in defined}


def check_calls(objects, bad):
    """Calls across folders that point up, and circles across folders."""
    owner, seen, arrows = owners(objects), 0, collections.defaultdict(set)
    for source, (_, used) in sorted(objects.items()):
        here = folder(source)
        if here not in LEVEL:
            continue
        for name in sorted(used):
            there = folder(owner[name]) if name in owner else here
            if there == here or there not in LEVEL:
                continue
            seen += 1
            arrows[here].add(there)
            if not may(here, there):
                bad.append(f"{source}: calls {name} of {owner[name]}, which is not below it")
    for start in sorted(arrows):
        reached, todo = set(), list(arrows[start])
        while todo:
            at = todo.pop()
            if at not in reached:
                reached.add(at)
                todo.extend(arrows[at])
        if start in reached:
            bad.append(f"{start}: in a circle of calls across folders")
    return seen


def check_net(objects, bad):
    """Calls of the system by those that have to use the table of src/net."""
    seen = 0
    for source, (_, used) in sorted(objects.items()):
        if not THROUGH_NET.match(source):
            continue
        seen += 1
        for name in sorted(used & SYSTEM):
            bad.append(f"{source}: calls {name}() of the system, not coll_net->{name}()")
    return seen


PROTOTYPE = re.compile(r"\b(coll_\w+)\s*\(")


def declared(text):
    """Names of the functions that a header declares without a body."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{', "", text)
    depth, flat = 0, []
    for part in re.split(r"([{}])", text):
        depth += (part == "{") - (part == "}")
        flat.append(";" if part == "}" else part if depth == 0 and part != "{" else " ")
    names = set()
    for statement in "".join(flat).split(";"):
        if "typedef" in statement or "static" in statement:
            continue
        match = PROTOTYPE.search(statement)
        if match and "(*" not in statement[:match.start()]:
            names.add(match.group(1))
    return names


def check_headers(paths, objects, bad):
    owner, seen = owners(objects), 0
    for path in paths:
        if not path.endswith(".h") or is_test(path) or not library(path) and not path.startswith("ddp/"):
            continue
        for name in sorted(declared(open(path).read())):
            if name not in owner:
                continue
            seen += 1
            if os.path.splitext(owner[name])[0] != os.path.splitext(path)[0]:
                bad.append(f"{path}: declares {name}, which {owner[name]} defines")
    return seen


def check_sizes(paths, bad):
    lines = collections.Counter()
    for path in paths:
        if path.startswith("src/") and not is_test(path):
            lines[folder(path)] += sum(1 for _ in open(path))
    total = sum(lines.values())
    for name, count in lines.items():
        if count > LARGEST * total:
            bad.append(f"src/{name} holds {100 * count // total} % of the lines of src/, at most {LARGEST:.0%}")
    return len(lines)


def check_callbacks(bad):
    for path, names in CALLBACKS.items():
        text = open(path).read() if os.path.exists(path) else ""
        for name in names:
            if not re.search(rf"\bstruct {name} \{{", text):
                bad.append(f"{path}: declares no struct {name}, which the list of callbacks names")
    return sum(len(names) for names in CALLBACKS.values())


def self_test(objects, planted):
    """Planted mistakes must be found; returns those that are not."""
    missed, bad = [], []
    # An upward call, compiled: an object that stands for a file of base and calls the communicator.
    check_calls({**objects, "src/base/planted.c": read_symbols(planted)}, bad)
    if not any(line.startswith("src/base/planted.c") for line in bad) or not any("circle" in line for line in bad):
        missed.append("the planted upward call was not found")
    bad = []
    check_net({"src/control/planted.c": (set(), {"poll"}), "src/control/control.c": objects["src/control/control.c"]}, bad)
    if bad != ["src/control/planted.c: calls poll() of the system, not coll_net->poll()"]:
        missed.append(f"a planted call of the system was not found: {bad}")
    # One transport that calls another, and common that calls a transport.
    for caller in ("transports/shm", "transports/common"):
        bad = []
        check_calls({**objects, caller + "/planted.c": ({"coll_planted_caller"}, {"coll_tcp_planted"}),
                     "transports/tcp/planted.c": ({"coll_tcp_planted"}, set())}, bad)
        if not any(line.startswith(caller + "/planted.c") for line in bad):
            missed.append(f"a planted call from {caller} to tcp was not found")
    bad = []
    check_includes(["tests/planted/upward.h"], bad, "base")
    if len(bad) != 1:
        missed.append("the planted upward include was not found")
    if declared("coll_status coll_x_y(int a);\nstatic inline int coll_z(void)\n{\n\treturn coll_w();\n}\n") != {"coll_x_y"}:
        missed.append("prototypes are not read as they should")
    return missed


def main(root, build, planted):
    os.chdir(root)
    paths = sorted(os.path.join(base, name) for top in ("src", "transports", "topology", "sim", "gpt", "ddp", "examples")
                   for base, _, names in os.walk(top) for name in names if name.endswith((".c", ".h")))
    objects = symbols(build, json.load(open(os.path.join(build, "compile_commands.json"))), root)
    bad = []
    seen = (check_includes(paths, bad) + check_calls(objects, bad) + check_headers(paths, objects, bad) +
            check_net(objects, bad) + check_sizes(paths, bad) + check_callbacks(bad))
    bad += self_test(objects, planted)
    print("\n".join(bad))
    print(f"{max(seen - len(bad), 0)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or seen < 2000 else 0


if __name__ == "__main__":
    sys.exit(main(*map(os.path.abspath, sys.argv[1:4])))
