#!/usr/bin/env python3
"""The packages of Debian, from the tarball of the commit that is checked out, as one who gets it builds them: in a bare root, with what debian/control
names and nothing else. lintian looks at them there; autopkgtest installs them into another bare root and runs debian/tests.

The files go to OUT/debian. Needs root, debootstrap, autopkgtest and the package sources of this machine; ends with 77 and the reason where one is missing.
usage: deb.py SOURCE-ROOT OUT [-jN] [--test]   --test: only test what is in OUT/debian"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import bare_root
import dist

WHAT = "the packages of Debian"
PACKAGES = {"libcoll0", "libcoll-dev", "libcoll-tools", "python3-coll"}
# Rules of Debian's own archive, and that the tarball of a release has debian/, too.
NOT_HERE = "initial-upload-closes-no-bugs,no-debian-changes"
TESTS = {"programs", "build", "python"}
FOR_BUILD = "apt-get update -q && apt-get install -y -q --no-install-recommends dpkg-dev && "\
    "apt-get build-dep -y -q --no-install-recommends /build/libcoll-{v}"


def step(name, done, began, log):
    good = done.returncode == 0
    print(f"{name}: {'done' if good else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
    if not good:
        print(log[-6000:])
        sys.exit(1)


def run(name, root, command, runner=bare_root.inside, *args):
    began = time.monotonic()
    done = runner(root, command, *args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    step(name, done, began, done.stdout)
    return done.stdout


def unpack(tar, version, folder):
    """The source, and the tarball beside it under the name that dpkg-source wants."""
    os.makedirs(folder)
    shutil.copy(tar, f"{folder}/libcoll_{version}.orig.tar.gz")
    with tarfile.open(tar) as t:
        t.extractall(folder, filter="data")


def packages_of(folder):
    """Names of the packages that were built, without those that hold debug information alone."""
    return {os.path.basename(p).split("_")[0] for p in glob.glob(f"{folder}/*.deb") if "-dbgsym_" not in p}


def build(tar, version, bare, builder, jobs, out):
    """In the folder builder, which becomes a root."""
    subprocess.run(["cp", "-a", bare, builder], check=True)
    unpack(tar, version, f"{builder}/build")
    run("what it needs to be built", builder, FOR_BUILD.format(v=version))
    log = run("build", builder, f"cd /build/libcoll-{version} && DEB_BUILD_OPTIONS=parallel={jobs} dpkg-buildpackage -us -uc")
    if packages_of(f"{builder}/build") != PACKAGES:
        print(log[-3000:])
        sys.exit(f"built {sorted(packages_of(f'{builder}/build'))}, expected {sorted(PACKAGES)}")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for path in glob.glob(f"{builder}/build/*"):
        if os.path.isfile(path):
            shutil.copy(path, out)


def judge(builder):
    run("lintian is there", builder, "apt-get install -y -q --no-install-recommends lintian")
    told = run("lintian", builder, f"cd /build && lintian --allow-root --fail-on error,warning --suppress-tags {NOT_HERE} --tag-display-limit 0 *.changes")
    print(told.strip() or "lintian: no error and no warning", flush=True)


def test(tar, version, bare, folder, out):
    """With mounts in the root, but started from outside: nothing but the packages, and what the tests need, comes into it."""
    root, packages = f"{folder}/tested", f"{folder}/packages"
    subprocess.run(["cp", "-a", bare, root], check=True)
    with tarfile.open(tar) as t:
        t.extractall(f"{folder}/source", filter="data")
    os.makedirs(packages)
    for path in glob.glob(f"{out}/*.deb"):
        if "-dbgsym_" not in path:
            shutil.copy(path, packages)
    told = run("autopkgtest", root, 'exec autopkgtest --no-built-binaries "$1" "$2"/*.deb -- chroot "$0"', bare_root.mounted, f"{folder}/source/libcoll-{version}", packages)
    print("\n".join(re.findall(r"^\w+ +(?:PASS|FAIL|SKIP)\b.*", told, re.M)))
    passed = set(re.findall(r"^(\w+) +PASS\b", told, re.M))
    if passed != TESTS:
        print(told[-6000:])
        sys.exit(f"passed: {sorted(passed)}, expected {sorted(TESTS)}")


def main():
    source, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    jobs = next((a[2:] for a in sys.argv[3:] if re.fullmatch(r"-j\d+", a)), str(os.cpu_count()))
    bare_root.need(WHAT, "autopkgtest", "git")
    if subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True).returncode:
        bare_root.skip(f"{WHAT} are made from a git repository")
    address, codename = bare_root.mirror(WHAT)
    version, _, _ = dist.facts(source)
    dist.make(source, out)
    tar, made = f"{out}/libcoll-{version}.tar.gz", f"{out}/debian"
    with tempfile.TemporaryDirectory(prefix="deb-") as folder:
        began, bare = time.monotonic(), f"{folder}/bare"
        bare_root.make(bare, address, codename)
        bare_root.let_apt_in(bare, address, codename)
        print(f"bare root: done, {time.monotonic() - began:.0f} s", flush=True)
        if "--test" not in sys.argv:
            build(tar, version, bare, f"{folder}/builder", jobs, made)
            judge(f"{folder}/builder")
        test(tar, version, bare, folder, made)
    for path in sorted(glob.glob(f"{made}/*.deb")):
        print(f"{os.path.getsize(path):9} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
