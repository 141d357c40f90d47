#!/usr/bin/env python3
"""The site: the pages of the tree, and an API reference by topic from the public headers, by Sphinx.

Pages are copied with their folders, so that links between them hold; links to other files of the tree become plain text. The search is that of Sphinx.
usage: site.py SOURCE-ROOT OUT   (Sphinx, myst-parser and furo for this interpreter: ./run site)
       site.py --api SOURCE-ROOT   compare the names of the reference with src/libcoll.map, and the paths of the front page with the guide"""
import os
import re
import shutil
import subprocess
import sys

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = ("docs/guide", "docs/design", "docs/results")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def save(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- API ----

def prose(comment):
    """The text of a comment in Markdown: names as code, the rest as it is, paragraphs and lists kept."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.strip()[2:-2].split("\n")]
    text = "\n".join(re.sub(r"^\t.*", lambda m: "    " + m[0].strip(), line).rstrip() for line in lines).strip()
    text = re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", text)
    text = re.sub(r"^( *)- ", r"\1- ", text, flags=re.M)
    return re.sub(r"\b(?:coll|COLL)\\_(?:\w|\\_)+(?:\(\))?", lambda m: "`" + m[0].replace("\\", "") + "`", text)


def chunks(text):
    """(comment, code) from top to bottom: a comment that begins in the first column, and what follows it."""
    found, comment, code = [], "", ""
    for part in re.split(r"(^/\*.*?\*/)", text, flags=re.M | re.S):
        if part.startswith("/*"):
            if code.strip():
                found.append((comment, code))
                comment, code = "", ""
            comment += ("\n\n" if comment else "") + prose(part)
        else:
            code += part
    return found + [(comment, code)]


def names(code):
    return re.findall(r"\b(coll_\w+)\(", " ".join(re.findall(r"COLL_API [^;]*?\(", re.sub(r"/\*.*?\*/", "", code, flags=re.S))))


def topics(header):
    """(title, text) of each section of a header; what comes before the first is types and conventions."""
    body = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", header, flags=re.M | re.S)
    body = re.sub(r"^#(?:ifndef COLL_\w+_H|define COLL_\w+_H|endif|include .*|if defined.*|else|define COLL_API.*)\n", "", body, flags=re.M)
    parts = re.split(r"^/\* ---- (.*?) -+ \*/$", body, flags=re.M)
    return [("Conventions and types", parts[0])] + list(zip(parts[1::2], parts[2::2]))


def page_of(title, text):
    out = [f"# {title}\n"]
    for comment, code in chunks(text):
        found = names(code)
        if found:
            out.append("## " + ", ".join(n + "()" for n in found) + "\n")
        if comment:
            out.append(comment + "\n")
        if code.strip():
            out.append("```c\n" + code.strip("\n").expandtabs(8) + "\n```\n")
    return "\n".join(out)


def api(root):
    """{path: page} of the reference, and {function: page}."""
    pages, where, index = {}, {}, []
    for name in ("coll.h", "ddp.h"):
        for title, text in topics(read(f"{root}/include/coll/{name}")):
            slug = re.sub(r"\W+", "-", f"{name[:-2]} {title}".lower()).strip("-")
            pages[f"api/{slug}.md"] = page_of(f"{title} ({name})", text)
            index.append((f"{slug}.md", f"coll/{name}: {title}", names(text)))
            where.update({n: slug for n in names(text)})
    out = ["# API\n", "By topic, from the headers. Each function has a man page too: `man coll_all_reduce`.\n", "| topic | functions |", "|---|---|"]
    out += [f"| [{title}]({path}) | " + ", ".join(f"`{n}()`" for n in found) + " |" for path, title, found in index]
    out += ["\n## All functions\n"] + [f"- [`{n}()`]({where[n]}.md)" for n in sorted(where)]
    out += ["\n```{toctree}\n:hidden:\n"] + [path[:-3] for path, _, _ in index] + ["```\n"]
    pages["api/README.md"] = "\n".join(out)
    return pages, where


def check_api(root):
    """What differs between the reference and what the library exports."""
    pages, _ = api(root)
    shown = {n for text in pages.values() for line in re.findall(r"^## (coll_.*)$", text, re.M) for n in re.findall(r"coll_\w+", line)}
    exported = set(re.findall(r"^\s+(coll_\w+);$", read(f"{root}/src/libcoll.map"), re.M))
    return [f"{n}: on a page of the API, not exported" for n in shown - exported] + [f"{n}: exported, on no page of the API" for n in exported - shown]


# ---- Pages ----

def links(text, path, there, root):
    """Links to folders lead to their index; those to files of the tree that are no pages become text. Dead ones stay, for Sphinx to find."""
    def one(m):
        label, to, anchor = m[1], m[2], m[3] or ""
        if "://" in to or not to:
            return m[0]
        at = os.path.normpath(os.path.join(os.path.dirname(path), to))
        if at in there:
            return m[0]
        if f"{at}/README.md" in there:
            return f"[{label}]({to}/README.md{anchor})"
        return m[0] if re.search(r"\.(svg|png|txt|json)$", at) or not os.path.exists(os.path.join(root, at)) else label
    return re.sub(r"(?<!!)\[([^\]\n]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", one, text)


def stage(root, out):
    """The source of Sphinx in a folder of its own."""
    shutil.rmtree(out, ignore_errors=True)
    pages = {name: read(f"{root}/{name}") for name in PAGES}
    for folder in FOLDERS:
        for base, _, files in os.walk(f"{root}/{folder}"):
            for name in files:
                path = os.path.relpath(os.path.join(base, name), root)
                if name.endswith(".md"):
                    pages[path] = read(os.path.join(root, path))
                elif name.endswith((".svg", ".txt", ".json")):
                    os.makedirs(os.path.join(out, os.path.dirname(path)), exist_ok=True)
                    shutil.copy(os.path.join(root, path), os.path.join(out, path))
    pages.update(api(root)[0])
    pages["index.md"] = read(f"{root}/docs/site/index.in")
    for path, text in pages.items():
        text = links(text, path, pages, root)
        if path in ("docs/guide/README.md", "docs/design/README.md"):
            folder = os.path.dirname(path)
            inside = re.findall(r"\]\(([\w-]+)\.md\)", text)
            text += "\n```{toctree}\n:hidden:\n\n" + "\n".join(dict.fromkeys(n for n in inside if f"{folder}/{n}.md" in pages)) + "\n```\n"
        save(os.path.join(out, path), text)
    shutil.copy(f"{root}/docs/site/conf.py", f"{out}/conf.py")
    return pages


def unreached(front, guide):
    """Pages of the guide to which no path of the front page leads."""
    return [f"docs/site/index.in: no path leads to {name}" for name in sorted(guide) if f"(docs/guide/{name})" not in front]


def main():
    if sys.argv[1] == "--api":
        root = sys.argv[2]
        guide = {n for n in os.listdir(f"{root}/docs/guide") if n.endswith(".md")} - {"README.md"}
        wrong = check_api(root) + unreached(read(f"{root}/docs/site/index.in"), guide)
        if unreached("(docs/guide/a.md)", {"a.md", "b.md"}) != ["docs/site/index.in: no path leads to b.md"]:
            wrong.append("self-test: a page that is not reached")
        print("\n".join(wrong) or "the API pages have the functions that the library exports, and paths lead to all pages of the guide")
        return 1 if wrong else 0
    root, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    pages = stage(root, f"{out}/source")
    shutil.rmtree(f"{out}/html", ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", f"{out}/source", f"{out}/html"])
    print(f"site: {len(pages)} pages in {out}/html/index.html")
    return done.returncode or (1 if check_api(root) else 0)


sys.exit(main())
