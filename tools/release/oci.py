#!/usr/bin/env python3
"""An OCI image with the library and its programs: a minbase root of this system's release by debootstrap, with what an installation below /usr/local
has. umoci writes it; then it is unpacked again and `collrun -n 2 coll-info` is run in it, in a chroot with mounts and processes of its own.

Needs root for the root file system, debootstrap, umoci and the package sources of this machine; ends with 77 and the reason where one is missing.
usage: oci.py BUILD OUT"""
import os
import shutil
import subprocess
import sys
import tempfile

import bare_root

WHAT = "the OCI image"
PACKAGES = "libhwloc15,openssh-client"


def sh(*args, **more):
    return subprocess.run(args, check=True, **more)


def main():
    build, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    bare_root.need(WHAT, "umoci", "meson")
    address, codename = bare_root.mirror(WHAT)
    version = subprocess.run(["meson", "introspect", "--projectinfo", build], capture_output=True, text=True, check=True).stdout.split('"version": "')[1].split('"')[0]
    image = f"{out}/libcoll-{version}-oci"
    shutil.rmtree(image, ignore_errors=True)
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oci-") as folder:
        root = f"{folder}/root"
        bare_root.make(root, address, codename, PACKAGES)
        shutil.rmtree(f"{root}/var/cache/apt", ignore_errors=True)
        shutil.rmtree(f"{root}/var/lib/apt/lists", ignore_errors=True)
        sh("meson", "install", "-C", build, "--no-rebuild", "--quiet", env=dict(os.environ, DESTDIR=root), stdout=subprocess.DEVNULL)
        sh("chroot", root, "ldconfig")
        sh("umoci", "init", "--layout", image)
        sh("umoci", "new", "--image", f"{image}:{version}")
        sh("umoci", "insert", "--rootless", "--image", f"{image}:{version}", root, "/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sh("umoci", "config", "--image", f"{image}:{version}", "--config.cmd", "coll-info", "--config.env", "PATH=/usr/local/bin:/usr/bin:/bin",
           "--config.label", f"org.opencontainers.image.version={version}", "--config.label", "org.opencontainers.image.licenses=MIT",
           "--config.label", "org.opencontainers.image.title=libcoll")
        # As one who gets it: unpacked, and run.
        sh("umoci", "unpack", "--rootless", "--image", f"{image}:{version}", f"{folder}/bundle", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && '
                               'exec chroot "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin collrun -n 2 coll-info', f"{folder}/bundle/rootfs"],
                              capture_output=True, text=True)
        wrong = done.returncode or "rank 1 on" not in done.stdout
        told = [line for line in done.stdout.split("\n") if line.startswith(("libcoll ", "ranks:", "  rank ", "launcher:"))]
        print("\n".join(told) if not wrong else f"FAILED: collrun -n 2 coll-info in the image: status {done.returncode}\n{done.stdout}{done.stderr}")
    size = sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(image) for name in names)
    print(f"oci: {image}, {size >> 20} MiB")
    return 1 if wrong else 0


sys.exit(main())
