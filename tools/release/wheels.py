#!/usr/bin/env python3
"""Wheels that need Python and pip alone: abi3, manylinux_2_28, with hwloc inside.

All is compiled by the clang of PyPI's `ziglang`, against glibc 2.28, with nothing of this machine but Python's headers: hwloc from its source into the
library itself, and the headers of RDMA verbs, whose libraries are found at run time. What is fetched is named in SOURCES by its SHA-256; a file that is
in OUT/sources already is not fetched. What is built is the commit that is checked out, or the tree as it is where there is no git.

usage: wheels.py SOURCE-ROOT OUT [x86_64|aarch64...]   by default for this machine's processor. Files: OUT/dist and their list, OUT/dist/wheels.json"""
import glob
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.error
import urllib.request

GLIBC = "2.28"
PLATFORM = "manylinux_" + GLIBC.replace(".", "_")
PYTHON = (3, 11)  # the oldest that the module is for
PROCESSORS = ("x86_64", "aarch64")
# Below the Debian mirror that apt uses here: path and SHA-256. The headers are the same for all processors.
SOURCES = {
    "hwloc": ("pool/main/h/hwloc/hwloc_2.9.0.orig.tar.bz2", "b3fb1a43a14d8fbcd8e976de5ede2ea7ce1d768ed173adb33c7ceaaf098dc970"),
    "libibverbs": ("pool/main/r/rdma-core/libibverbs-dev_44.0-2_amd64.deb", "78e87d12fb642bc41b04cb2e2f3f2f23cee14b89978a846b83defe945f388f72"),
    "librdmacm": ("pool/main/r/rdma-core/librdmacm-dev_44.0-2_amd64.deb", "9606a1ffa6c3568e8861ce3b8b55b7e73bda35920d1264e1c82485496798de32"),
}
RDMA_HEADERS = ("infiniband/verbs.h", "infiniband/verbs_api.h", "infiniband/ib_user_ioctl_verbs.h", "infiniband/sa.h", "rdma/rdma_cma.h")
# Without what has libraries of its own: adapters and GPUs are read from /sys.
HWLOC = ("--disable-shared", "--enable-static", "--with-pic", "--disable-plugins", "--disable-readme", "--disable-doxygen",
         *(f"--disable-{part}" for part in ("libudev", "libxml2", "cairo", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl")))


def fail(why):
    sys.exit(f"wheel: {why}")


def run(log, *args, **more):
    """One step, whose output goes to a file of its own."""
    with open(log, "w", encoding="utf-8") as f:
        done = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode:
        with open(log, encoding="utf-8", errors="replace") as f:
            print("".join(f.readlines()[-40:]), file=sys.stderr)
        fail(f"{shlex.join(str(a) for a in args)[:200]}: status {done.returncode}. All it said: {log}")


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


# ---- Sources ----

def mirrors():
    """Addresses of Debian archives, as apt has them."""
    if not shutil.which("apt-get"):
        return []
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)", "Created-By: Packages"], capture_output=True, text=True, check=False).stdout
    found = [line.split()[0].rstrip("/") for line in told.split("\n") if line.split()[1:] == ["Debian", "main"]]
    return list(dict.fromkeys(found))


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def fetch(name, out):
    """The file of a source, checked."""
    path, wanted = SOURCES[name]
    file = os.path.join(out, "sources", os.path.basename(path))
    tried = []
    os.makedirs(os.path.dirname(file), exist_ok=True)
    for address in [] if os.path.exists(file) else mirrors():
        try:
            with urllib.request.urlopen(f"{address}/{path}", timeout=60) as got, open(file + ".part", "wb") as f:
                shutil.copyfileobj(got, f)
            os.replace(file + ".part", file)
            break
        except (urllib.error.URLError, OSError) as error:
            tried.append(f"{address}: {getattr(error, 'reason', error)}")
    if not os.path.exists(file):
        fail(f"cannot fetch {os.path.basename(path)} ({'; '.join(tried) or 'apt has no archive of Debian here'}). Without a network, put that file, "
             f"of SHA-256 {wanted}, into {os.path.dirname(file)}")
    if digest(file) != wanted:
        fail(f"{file} is not what it should be: its SHA-256 is {digest(file)}, not {wanted}. Remove it to have it fetched again")
    return file


def members_of_deb(file):
    """The tar of a Debian package: an ar of debian-binary, control.tar and data.tar."""
    with open(file, "rb") as f:
        data = f.read()
    at = 8
    while at < len(data):
        name, size = data[at:at + 16].decode().strip().rstrip("/"), int(data[at + 48:at + 58])
        if name.startswith("data.tar"):
            return tarfile.open(fileobj=io.BytesIO(data[at + 60:at + 60 + size]))
        at += 60 + size + size % 2
    return fail(f"{file} has no data.tar")


def source_tree(root, tree):
    """What is built: (commit or None, seconds since 1970)."""
    shutil.rmtree(tree, ignore_errors=True)
    told = subprocess.run(["git", "-C", root, "log", "-1", "--format=%H %ct"], capture_output=True, text=True, check=False)
    top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False).stdout.strip()
    if told.returncode or os.path.realpath(top) != os.path.realpath(root):
        shutil.copytree(root, tree, ignore=lambda folder, names: [n for n in names if os.path.join(folder, n) == os.path.join(root, "build") or n == "__pycache__"])
        return None, int(os.path.getmtime(os.path.join(root, "meson.build")))
    if subprocess.run(["git", "-C", root, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout:
        print("wheel: there are changes that are not committed: they are not in the wheel")
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(["git", "-C", root, "archive", "HEAD"], capture_output=True, check=True).stdout)) as t:
        t.extractall(tree, filter="data")
    commit, seconds = told.stdout.split()
    # What the programs print as their version. Meson would ask git in a folder that is none of its own.
    stamp = os.path.join(tree, "src/commit.c.in")
    with open(stamp, encoding="utf-8") as f:
        text = f.read()
    write(stamp, text.replace("@VCS_TAG@", commit[:12]))
    return commit, int(seconds)


# ---- One processor ----

class Place:
    """Where one processor's parts are."""

    def __init__(self, out, processor):
        self.out, self.processor = out, processor
        self.here = os.path.join(out, processor)
        self.prefix = os.path.join(self.here, "prefix")
        self.bin = os.path.join(self.here, "bin")
        self.env = dict(os.environ, ZIG_GLOBAL_CACHE_DIR=os.path.join(out, "zig"), ZIG_LOCAL_CACHE_DIR=os.path.join(out, "zig"),
                        PKG_CONFIG_LIBDIR=os.path.join(self.prefix, "lib/pkgconfig"), PKG_CONFIG_PATH="", LC_ALL="C.UTF-8", GIT_CEILING_DIRECTORIES=out,
                        PATH=":".join([self.bin, os.path.dirname(sys.executable), os.environ["PATH"]]))
        for name in ("CC", "CXX", "CFLAGS", "CPPFLAGS", "LDFLAGS", "CC_LD", "PYTHONPATH"):
            self.env.pop(name, None)

    def log(self, name):
        return os.path.join(self.here, name + ".log")


def compilers(place):
    """cc, ar and ranlib for the processor, and clang for the kernels of devices."""
    import ziglang
    folder = os.path.dirname(ziglang.__file__)
    zig = shlex.quote(os.path.join(folder, "zig"))
    for name, what in (("cc", f"cc -target {place.processor}-linux-gnu.{GLIBC}"), ("ar", "ar"), ("ranlib", "ranlib"),
                       ("clang", f"clang -isystem {shlex.quote(os.path.join(folder, 'lib/include'))}")):
        write(os.path.join(place.bin, name), f'#!/bin/sh\nexec {zig} {what} "$@"\n', 0o755)


def python_headers(place):
    """Those of this Python, whose limited interface is the same on all 64-bit machines. Debian's pyconfig.h refers to one by machine."""
    include, to = sysconfig.get_path("include"), os.path.join(place.prefix, "include/python")
    if not os.path.exists(os.path.join(include, "Python.h")):
        fail(f"Python.h is missing: Python {sysconfig.get_python_version()} keeps it in {include}. On Debian or Ubuntu: apt install python3-dev")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        fail("a free-threaded Python has no limited interface: COLL_PYTHON=FILE names another one")
    shutil.copytree(include, to, dirs_exist_ok=True)
    with open(os.path.join(to, "pyconfig.h"), encoding="utf-8") as f:
        other = re.search(rf"# *include <({platform.machine()}-linux-gnu/[^>]+)>", f.read())
    if other:
        shutil.copy(os.path.join("/usr/include", other[1]), os.path.join(to, "pyconfig.h"))


def rdma_headers(place):
    include = os.path.join(place.prefix, "include")
    for name in ("libibverbs", "librdmacm"):
        file = fetch(name, place.out)
        with members_of_deb(file) as deb:
            for member in deb.getmembers():
                inside = member.name.removeprefix("./usr/include/")
                if inside in RDMA_HEADERS:
                    os.makedirs(os.path.join(include, os.path.dirname(inside)), exist_ok=True)
                    with open(os.path.join(include, inside), "wb") as f:
                        f.write(deb.extractfile(member).read())
        version = os.path.basename(file).split("_")[1].split("-")[0]
        write(os.path.join(place.prefix, f"lib/pkgconfig/{name}.pc"),
              f"Name: {name}\nDescription: headers of {name}\nVersion: {version}\nCflags: -I{include}\nLibs:\n")


def hwloc(place):
    """A static library, once."""
    done, file = os.path.join(place.prefix, "lib/pkgconfig/hwloc.pc"), fetch("hwloc", place.out)
    if os.path.exists(done):
        return
    source, build = os.path.join(place.here, "hwloc-source"), os.path.join(place.here, "hwloc")
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(build, ignore_errors=True)
    os.makedirs(build)
    with tarfile.open(file) as t:
        t.extractall(source, filter="data")
    configure = os.path.join(source, os.listdir(source)[0], "configure")
    tools = [f"{name.upper()}={os.path.join(place.bin, name)}" for name in ("cc", "ar", "ranlib")]
    print(f"wheel: hwloc for {place.processor}", flush=True)
    run(place.log("hwloc-configure"), configure, f"--host={place.processor}-linux-gnu", f"--prefix={place.prefix}", *HWLOC, *tools, "CFLAGS=-O2 -g0", cwd=build, env=place.env)
    for folder in ("include", "hwloc"):
        run(place.log("hwloc-" + folder), "make", "-C", folder, f"-j{os.cpu_count()}", "install", cwd=build, env=place.env)
    shutil.copy(os.path.join(build, "hwloc.pc"), done)


def cross_file(place):
    file = os.path.join(place.here, "cross.ini")
    tools = {name: os.path.join(place.bin, name) for name in ("ar", "ranlib")} | {"c": os.path.join(place.bin, "cc"), "python3": sys.executable,
                                                                                   "pkg-config": shutil.which("pkg-config") or "pkg-config"}
    lines = ["[binaries]", *(f"{name} = '{path}'" for name, path in tools.items()), "[built-in options]",
             f"c_args = ['-g0', '-fno-sanitize=undefined', '-I{place.prefix}/include/python']", "c_link_args = ['-s']",
             "[properties]", f"pkg_config_libdir = '{place.env['PKG_CONFIG_LIBDIR']}'", f"needs_exe_wrapper = {'false' if place.processor == platform.machine() else 'true'}",
             "[host_machine]", "system = 'linux'", f"cpu_family = '{place.processor}'", f"cpu = '{place.processor}'", "endian = 'little'"]
    write(file, "\n".join(lines) + "\n")
    return file


def wheel(place, tree, seconds):
    """The file made, in OUT/dist."""
    os.makedirs(place.here, exist_ok=True)
    compilers(place)
    os.makedirs(os.path.join(place.prefix, "lib/pkgconfig"), exist_ok=True)
    python_headers(place)
    rdma_headers(place)
    hwloc(place)
    build, plain, tagged = (os.path.join(place.here, name) for name in ("build", "plain", "tagged"))
    for folder in (build, plain, tagged):
        shutil.rmtree(folder, ignore_errors=True)
    env = dict(place.env, SOURCE_DATE_EPOCH=str(seconds), _PYTHON_HOST_PLATFORM=f"linux-{place.processor}")
    print(f"wheel: libcoll for {place.processor}", flush=True)
    setup = [f"--cross-file={cross_file(place)}", "-Dhwloc=enabled", "-Drdma=enabled", "-Dcuda=enabled", "-Dptx_compiler=clang"]
    run(place.log("build"), sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", plain,
        f"-Cbuild-dir={build}", *(f"-Csetup-args={a}" for a in setup), tree, env=env)
    made = glob.glob(os.path.join(plain, "*.whl"))[0]
    # The module is for the oldest Python, whichever one has built it.
    run(place.log("tags"), sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", f"cp{PYTHON[0]}{PYTHON[1]}", made, env=env)
    run(place.log("repair"), sys.executable, "-m", "auditwheel", "repair", "--plat", f"{PLATFORM}_{place.processor}", "--only-plat", "--wheel-dir", tagged,
        glob.glob(os.path.join(plain, "*.whl"))[0], env=env)
    made = glob.glob(os.path.join(tagged, "*.whl"))[0]
    to = os.path.join(place.out, "dist", os.path.basename(made))
    os.replace(made, to)
    return to


def main():
    root, out, asked = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:] or [platform.machine()]
    for processor in asked:
        if processor not in PROCESSORS:
            fail(f"no processor '{processor}': {' or '.join(PROCESSORS)}")
    for tool in ("make", "pkg-config", "sh"):
        if not shutil.which(tool):
            fail(f"there is no {tool}")
    dist, tree = os.path.join(out, "dist"), os.path.join(out, "source")
    os.makedirs(dist, exist_ok=True)
    commit, seconds = source_tree(root, tree)
    facts = {"commit": commit, "files": {}}
    try:
        with open(os.path.join(dist, "wheels.json"), encoding="utf-8") as f:
            before = json.load(f)
        facts = before if commit and before["commit"] == commit else facts
    except FileNotFoundError:
        pass
    for processor in asked:
        made = wheel(Place(out, processor), tree, seconds)
        facts["files"][os.path.basename(made)] = digest(made)
        print(f"{digest(made)}  {made}", flush=True)
        write(os.path.join(dist, "wheels.json"), json.dumps(facts, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
