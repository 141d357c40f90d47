"""A bare root of this system's own release, made by debootstrap, with the package sources of this machine; and how to run in it.

Needs root. The root is a folder of the caller's, who removes it."""
import os
import re
import shutil
import subprocess
import sys

TOOLS = ("debootstrap", "apt-get", "unshare", "chroot")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def need(what, *tools):
    """Ends the program with 77 and the reason where something is missing."""
    if os.geteuid():
        skip(f"{what}: needs root")
    for tool in TOOLS + tools:
        if not shutil.which(tool):
            skip(f"{what}: there is no {tool}")


def mirror(what):
    """Address and name of this system's release, from apt."""
    with open("/etc/os-release", encoding="utf-8") as f:
        codename = dict(line.strip().split("=", 1) for line in f if "=" in line).get("VERSION_CODENAME", "")
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
                          capture_output=True, text=True, check=True).stdout
    found = [line.split()[0] for line in told.split("\n") if line.split()[1:] == [codename, "main"]]
    return (found[0], codename) if found else skip(f"{what}: apt has no source of this release")


def make(root, address, codename, include="", architecture=""):
    """include: packages beside those of minbase, by commas. architecture: Debian's name of one that this machine runs; empty: its own."""
    more = [f"--include={include}"] if include else []
    more += [f"--arch={architecture}"] if architecture else []
    subprocess.run(["debootstrap", "--variant=minbase", *more, codename, root, address], check=True, stdout=subprocess.DEVNULL)


def let_apt_in(root, address, codename):
    """apt in the root asks whom apt of this machine asks."""
    with open(f"{root}/etc/apt/sources.list", "w", encoding="utf-8") as f:
        f.write(f"deb {address} {codename} main\n")
    config = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    with open(f"{root}/etc/apt/apt.conf.d/90host", "w", encoding="utf-8") as f:
        f.writelines(line + "\n" for line in config.split("\n") if re.match(r"Acquire::(http|https|Check-\w+)\b", line))
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", f"{root}/etc/{name}")


def mounted(root, command, *args, **more):
    """Run a shell command with the root's mounts, in mounts and processes of its own: all that it leaves behind ends with it."""
    mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && '
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounts + command, root, *args], stdin=subprocess.DEVNULL,
                          check=False, **more)


def inside(root, command, **more):
    """Run a command of bash inside the root, with an environment of its own."""
    return mounted(root, f'exec chroot "$0" env -i PATH={PATH} HOME=/root TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c "$1"', command, **more)
