#!/usr/bin/env python3
"""What a release consists of, from the commit that is checked out: the tarball, the wheels of that commit where ./run wheel has made them, their SBOM and
their checksums.

The same commit gives the same bytes, whenever and wherever this runs: times are those of the commit, names are sorted, and nothing
of the machine goes in. The tarball has what git has, no more; changes that are not committed are not in it.
usage: dist.py SOURCE-ROOT OUT [--check]   --check: make it twice and compare, compare its files with git's, unpack and
                                           configure it, and let spdx-tools judge the SBOM where they are installed"""
import glob
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
from datetime import datetime, timezone

# What the library needs at run time: (name, licence, relation, what for).
NEEDS = (
    ("glibc", "LGPL-2.1-or-later", "DEPENDS_ON", "the C library, 2.34 or later as built on Debian 12"),
    ("hwloc", "BSD-3-Clause", "OPTIONAL", "linked where it was found: what a machine has"),
    ("libibverbs", "GPL-2.0-only OR BSD-2-Clause", "OPTIONAL", "loaded at run time for RDMA"),
    ("librdmacm", "GPL-2.0-only OR BSD-2-Clause", "OPTIONAL", "loaded at run time for RDMA"),
    ("libcuda", "NOASSERTION", "OPTIONAL", "the CUDA driver, loaded at run time for device memory"),
    ("libpmix", "BSD-3-Clause", "OPTIONAL", "loaded at run time under launchers that use it"),
    ("libmunge", "LGPL-3.0-or-later", "OPTIONAL", "loaded at run time under srun"),
)
HWLOC_INSIDE = "2.9.0"  # that of tools/release/wheels.py


def git(root, *args, text=True):
    return subprocess.run(["git", "-C", root, *args], check=True, capture_output=True, text=text).stdout


def facts(root):
    text = git(root, "show", "HEAD:meson.build")
    version = re.search(r"^  version: '([^']+)'", text, re.M)[1]
    return version, git(root, "rev-parse", "HEAD").strip(), int(git(root, "show", "-s", "--format=%ct", "HEAD"))


def tarball(root, version, seconds):
    """The bytes of libcoll-VERSION.tar.gz."""
    plain, out = git(root, "archive", "--format=tar", "HEAD", text=False), io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(plain)) as old, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            body = old.extractfile(member) if member.isfile() else None
            member.name = f"libcoll-{version}/{member.name}"
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = seconds
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, body)
    # No name and no time in the head of gzip.
    return gzip.compress(out.getvalue(), 9, mtime=0)


def wheels(root, commit):
    """{name: bytes} of the wheels of this commit."""
    folder, found = os.path.join(root, "build/wheel/dist"), {}
    if os.path.exists(os.path.join(folder, "wheels.json")):
        with open(os.path.join(folder, "wheels.json"), encoding="utf-8") as f:
            facts = json.load(f)
        for name, digest in facts["files"].items() if facts["commit"] == commit else ():
            with open(os.path.join(folder, name), "rb") as f:
                found[name] = f.read()
            if hashlib.sha256(found[name]).hexdigest() != digest:
                sys.exit(f"dist: {folder}/{name} is not the file that ./run wheel has made")
    return found


def sbom(version, commit, seconds, name, digest, wheel_digests):
    """SPDX 2.3 in JSON."""
    when = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    packages = [{
        "SPDXID": "SPDXRef-libcoll", "name": "libcoll", "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "packageFileName": name, "checksums": [{"algorithm": "SHA256", "checksumValue": digest}], "licenseConcluded": "MIT", "licenseDeclared": "MIT",
        "copyrightText": "Copyright (c) 2026 the libcoll authors", "supplier": "NOASSERTION", "sourceInfo": f"git commit {commit}",
        "primaryPackagePurpose": "LIBRARY",
    }]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-libcoll"}]
    if wheel_digests:
        packages.append({"SPDXID": "SPDXRef-hwloc-inside", "name": "hwloc", "versionInfo": HWLOC_INSIDE, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                         "licenseConcluded": "BSD-3-Clause", "licenseDeclared": "BSD-3-Clause", "copyrightText": "NOASSERTION", "supplier": "NOASSERTION",
                         "comment": "linked into the library of the wheels"})
    for number, (wheel, wheel_digest) in enumerate(sorted(wheel_digests.items())):
        this = f"SPDXRef-wheel-{number}"
        packages.append(dict(packages[0], SPDXID=this, packageFileName=wheel, checksums=[{"algorithm": "SHA256", "checksumValue": wheel_digest}]))
        relations += [{"spdxElementId": this, "relationshipType": kind, "relatedSpdxElement": other}
                      for kind, other in (("GENERATED_FROM", "SPDXRef-libcoll"), ("CONTAINS", "SPDXRef-hwloc-inside"))]
    for need, licence, relation, what in NEEDS:
        packages.append({"SPDXID": f"SPDXRef-{need}", "name": need, "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
                         "licenseDeclared": licence, "copyrightText": "NOASSERTION", "supplier": "NOASSERTION", "comment": what})
        both = ("SPDXRef-libcoll", "DEPENDS_ON", f"SPDXRef-{need}") if relation == "DEPENDS_ON" else (f"SPDXRef-{need}", "OPTIONAL_DEPENDENCY_OF", "SPDXRef-libcoll")
        relations.append(dict(zip(("spdxElementId", "relationshipType", "relatedSpdxElement"), both)))
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"libcoll-{version}",
        # No address is needed for this name; equal commits have equal names.
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "creationInfo": {"created": when, "creators": ["Tool: libcoll-tools-release-dist"]}, "packages": packages, "relationships": relations,
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def make(root, out):
    """{name: SHA-256} of what was written."""
    version, commit, seconds = facts(root)
    os.makedirs(out, exist_ok=True)
    name = f"libcoll-{version}.tar.gz"
    data, files = tarball(root, version, seconds), wheels(root, commit)
    digests = {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
    for old in glob.glob(os.path.join(glob.escape(out), "*.whl")):
        os.remove(old)
    files |= {name: data, f"libcoll-{version}.spdx.json": sbom(version, commit, seconds, name, hashlib.sha256(data).hexdigest(), digests)}
    sums = {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
    files["SHA256SUMS"] = "".join(f"{s}  {n}\n" for n, s in sorted(sums.items())).encode()
    for n, d in files.items():
        with open(os.path.join(out, n), "wb") as f:
            f.write(d)
    return sums


def check(root, out, first):
    """What is wrong with what was made."""
    with tempfile.TemporaryDirectory(prefix="dist-") as other:
        # Another place, another mask, another zone.
        code = "import os, sys; os.umask(0o077); os.environ['TZ'] = 'Asia/Tokyo'; sys.argv = sys.argv[1:]; import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
        subprocess.run([sys.executable, "-c", code, os.path.abspath(__file__), root, other], check=True, stdout=subprocess.DEVNULL)
        for name, digest in first.items():
            with open(os.path.join(other, name), "rb") as f:
                if hashlib.sha256(f.read()).hexdigest() != digest:
                    yield f"{name}: a second run gives other bytes"
        tar = next(os.path.join(out, n) for n in first if n.endswith(".tar.gz"))
        with tarfile.open(tar) as t:
            inside = {m.name.split("/", 1)[1] for m in t.getmembers() if not m.isdir()}
            t.extractall(other, filter="data")
        tracked = set(git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")) - {""}
        if inside != tracked or len(inside) < 1000:
            yield f"the tarball has {len(inside)} files, git {len(tracked)}"
        if shutil.which("meson"):
            tree = tar[:-len(".tar.gz")].rsplit("/", 1)[1]
            done = subprocess.run(["meson", "setup", f"{other}/build", f"{other}/{tree}", "-Dtests=disabled", "-Dtools=disabled"], capture_output=True, text=True)
            if done.returncode:
                yield f"the tarball cannot be configured:\n{done.stdout[-2000:]}"
    document = next(os.path.join(out, n) for n in first if n.endswith(".spdx.json"))
    yield from judge(document)


def judge(document):
    """By spdx-tools where there are any; else that each relation has both ends."""
    if importlib.util.find_spec("spdx_tools"):
        from spdx_tools.spdx.parser.parse_anything import parse_file
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
        for message in validate_full_spdx_document(parse_file(document)):
            yield f"{document}: {message.validation_message}"
    with open(document, encoding="utf-8") as f:
        text = json.load(f)
    known = {p["SPDXID"] for p in text["packages"]} | {text["SPDXID"]}
    for r in text["relationships"]:
        if not {r["spdxElementId"], r["relatedSpdxElement"]} <= known:
            yield f"{document}: a relation of {r} that has no end"


def main():
    root, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if not shutil.which("git") or subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True).returncode:
        print("SKIPPED: the files of a release are made from a git repository")
        return 77
    first = make(root, out)
    for name, digest in sorted(first.items()):
        print(f"{digest}  {out}/{name}")
    if "--check" not in sys.argv:
        return 0
    wrong = list(check(root, out, first))
    with_tools = "by spdx-tools" if importlib.util.find_spec("spdx_tools") else "without spdx-tools"
    print("\n".join(wrong) or f"dist: made twice with the same bytes, has git's files, can be configured; SBOM judged {with_tools}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
