#!/usr/bin/env python3
"""The address of the project, which is one setting: docs/project.toml. Written between marks into the pages that need it.

Without arguments the pages are compared with the setting, and each that differs is named; --write makes them equal.
usage: address.py SOURCE-ROOT [--write]"""
import os
import re
import sys
import tomllib

SIGNED = r"^( -- ).*(  \w{3}, \d)"
NONE = "The project has no public address yet"


def maintainer(project):
    """Whom the packages of Debian name. A domain below .invalid exists nowhere (RFC 2606)."""
    return project["maintainer"] or "the libcoll authors <no-address-yet@libcoll.invalid>"


def texts(project):
    """{file: what stands between its marks}"""
    address, security = project["address"], project["security"]
    hidden = f"Report them to <{security}>, not in public." if security else \
        "No address for such reports is set yet: report to whoever gave you this copy, not in public."
    return {
        "README.md": f"The address of the project is <{address}>: report there.\n" if address else f"{NONE}: report to whoever gave you this copy.\n",
        "SECURITY.md": hidden + "\n",
        "debian/control": f"Maintainer: {maintainer(project)}\n",
        "CITATION.cff": f'repository-code: "{address}"\n' if address else f"# {NONE}.\n",
    }


def between(text):
    """(start, end) of what stands between the marks."""
    begin = re.search(r"^(?:<!-- |# )address: written by [^\n]*\n", text, re.M)
    end = begin and re.compile(r"^(?:<!-- end -->|# end)$", re.M).search(text, begin.end())
    return (begin.end(), end.start()) if end else None


def differ(name, text, want):
    at = between(text)
    if not at:
        return f"{name}: no marks for the address"
    if text[at[0]:at[1]] != want:
        return f"{name}: the address is not that of docs/project.toml: tools/release/address.py . --write"
    return None


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def main(root, write):
    project, bad = tomllib.loads(read(os.path.join(root, "docs/project.toml"))), []
    for name, want in texts(project).items():
        path = os.path.join(root, name)
        text = read(path)
        if write and between(text):
            begin, end = between(text)
            text = text[:begin] + want + text[end:]
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        bad += filter(None, [differ(name, text, want)])
    # The newest entry is signed by the same.
    path = os.path.join(root, "debian/changelog")
    text, signed = read(path), rf"\g<1>{maintainer(project)}\g<2>"
    if write:
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(SIGNED, signed, text, count=1, flags=re.M))
    if re.sub(SIGNED, signed, read(path), count=1, flags=re.M) != read(path) or not re.search(SIGNED, text, re.M):
        bad.append("debian/changelog: the newest entry is not signed by the maintainer of docs/project.toml")
    # The check must be able to fail.
    other = dict(project, address="https://example.org/other")
    if not differ("README.md", read(os.path.join(root, "README.md")), texts(other)["README.md"]):
        bad.append("self-test: another address is not noticed")
    print("\n".join(bad) or "the address is the same everywhere")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--write" in sys.argv))
