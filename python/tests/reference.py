#!/usr/bin/env python3
"""docs/guide/python-reference.md shows what the sources say: the signatures and docstrings of coll, of the stub of coll._coll,
and of coll.torch. Nothing is imported. Every public name has a docstring. usage: reference.py SOURCE-ROOT [--write]"""

import ast
import os
import re
import sys

ROOT = sys.argv[1]
PAGE = f"{ROOT}/docs/guide/python-reference.md"
PACKAGE = f"{ROOT}/python/coll"
WIDTH = 118
# The classes whose methods are written in C, and the stub's name of each.
IN_C = {"Communicator": "Comm", "Work": "Work"}
FUNCTIONS = {"Start and end": ["init", "init_all", "unique_id"], "Calls together": ["group", "progress"], "Log": ["log_to"], "Memory": ["raw"],
             "This installation": ["settings", "get_library", "get_include", "get_program"]}
CLASSES = ["Communicator", "Work", "Stream", "Event", "Receive", "Message", "Envelope", "Operation", "Op", "Buffer", "DeviceArray", "UniqueId"]
VALUES = ["ANY", "version"]
# Methods that a program calls by a sign of the language.
SIGNS = {"__call__", "__await__"}
faults = []


def tree(path):
    with open(path) as f:
        return ast.parse(f.read())


def exported(module):
    """__all__, and the file in which each name is made."""
    names, where = [], {}
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            where.update({(a.asname or a.name): node.module for a in node.names})
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
    return names, where


def members(body):
    """Public functions and properties of a class, or functions of a module: name -> its definitions (several: overloads)."""
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name in SIGNS):
            found.setdefault(node.name, []).append(node)
    return found


def marks(node):
    return {d.id if isinstance(d, ast.Name) else getattr(d, "attr", "") for d in node.decorator_list}


def plain(text):
    """Names as users see them: without the underscore of those that a file keeps to itself, and without modules."""
    return re.sub(r"\b_(?=[A-Z])|\b_objects\.|\bdist\.(?=ProcessGroup)", "", text)


def signature(node, name, method):
    """One line, or several that are indented below its bracket."""
    a = node.args
    plainly = a.posonlyargs + a.args
    parts, defaults = [], [None] * (len(plainly) - len(a.defaults)) + a.defaults
    shown = lambda arg, default: plain(arg.arg + (f": {ast.unparse(arg.annotation)}" if arg.annotation else "") + (
        (" = " if arg.annotation else "=") + ast.unparse(default) if default is not None else "")).replace("'", '"')
    for i, (arg, default) in enumerate(zip(plainly, defaults)):
        parts.append(shown(arg, default))
        if i + 1 == len(a.posonlyargs):
            parts.append("/")
    if a.vararg:
        parts.append("*" + shown(a.vararg, None))
    elif a.kwonlyargs:
        parts.append("*")
    parts += [shown(arg, default) for arg, default in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg:
        parts.append("**" + shown(a.kwarg, None))
    if method:
        parts = parts[2:] if parts[1:2] == ["/"] else parts[1:]
    result = plain(ast.unparse(node.returns)) if node.returns else "Any"
    # A context manager is used by `with`, whose value it yields.
    if "contextmanager" in marks(node):
        result = re.sub(r"^Iterator\[(.*)\]$", r"\1", result)
        name = "with " + name
    lines = [f"{name}("]
    for i, part in enumerate(parts):
        word = part + (", " if i + 1 < len(parts) else "")
        if len(lines[-1]) + len(word.rstrip()) > WIDTH - 30 and not lines[-1].endswith("("):
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * (len(name) + 1))
        lines[-1] += word
    if node.name == "__await__":  # a generator inside; the program sees what it returns
        return f"{name} -> {result.rpartition(', ')[2][:-1]}"
    return "\n".join(lines) + f") -> {result}"


def text_of(node, name):
    """A docstring as paragraphs; text that is indented in it is code."""
    text = ast.get_docstring(node)
    if not text:
        faults.append(f"{name} has no docstring")
        return []
    lines = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            lines += ["```python", *(line[4:] for line in paragraph.split("\n")), "```", ""]
        else:
            lines += [*paragraph.split("\n"), ""]
    return lines


def callable_text(definitions, name, prefix="", method=False):
    said = next((d for d in definitions if ast.get_docstring(d)), definitions[0])
    called = prefix + name
    if name in SIGNS:
        called = prefix.rstrip(".") if name == "__call__" else "await " + prefix.rstrip(".")
    shown = [signature(d, called, method and "staticmethod" not in marks(d)) for d in definitions]
    return ["```python", *shown, "```", "", *text_of(said, f"{prefix}{name}")]


def class_text(name, parts, level="##"):
    """A class of which each part (in C, then in Python) has some of the members."""
    lines = [f"{level} {name}", "", *text_of(parts[-1], name)]
    attributes, calls = [], []
    for part in parts:
        for member, definitions in members(part.body).items():
            if "property" in marks(definitions[0]):
                attributes.append((member, definitions[0]))
            else:
                calls.append((member, definitions))
        for node in part.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
                attributes.append((node.target.id, node))
    if attributes:
        lines += ["| attribute | type | is |", "|---|---|---|"]
        for member, node in attributes:
            kind = plain(ast.unparse(node.returns if isinstance(node, ast.FunctionDef) else node.annotation)).replace("|", "\\|")
            said = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else ""
            if isinstance(node, ast.FunctionDef) and not said:
                faults.append(f"{name}.{member} has no docstring")
            lines.append(f"| `{member}` | `{kind}` | {' '.join((said or '').split())} |")
        lines.append("")
    for member, definitions in calls:
        lines += callable_text(definitions, member, name[0].lower() + name[1:] + "." if name != "Communicator" else "comm.", method=True)
    return lines


def classes_of(module):
    return {n.name: n for n in module.body if isinstance(n, ast.ClassDef)}


def notes(path):
    """Comments that stand alone above a line: line number of what follows -> text."""
    found, above = {}, []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            if line.lstrip().startswith("#"):
                above.append(line.strip().lstrip("# "))
            else:
                if above and line.strip():
                    found[number] = " ".join(above)
                above = []
    return found


def types_text(stub, path):
    lines, said = ["## Types in signatures", "", "| name | stands for |", "|---|---|"], notes(path)
    for node in stub.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id != "_T":
            value = plain(ast.unparse(node.value)).replace("'", '"')
            lines.append(f"| `{plain(node.targets[0].id)}` | {said.get(node.lineno) or f'`{value}`'} |")
    return lines + ["| `T` | the type of the array that was given |", ""]


def errors_text(module, names):
    lines = ["## Errors", "", "| class | also a | means |", "|---|---|---|"]
    for name, node in classes_of(module).items():
        if name in names:
            bases = ", ".join(f"`{ast.unparse(b)}`" for b in node.bases)
            lines.append(f"| `{name}` | {bases} | {' '.join((ast.get_docstring(node) or '').split())} |")
            if not ast.get_docstring(node):
                faults.append(f"{name} has no docstring")
    base = classes_of(module)["CollError"]
    lines += ["", "All have these attributes:", "", "| attribute | type |", "|---|---|"]
    for node in base.body:
        if isinstance(node, ast.AnnAssign):
            lines.append(f"| `{node.target.id}` | `{ast.unparse(node.annotation)}` |")
        elif isinstance(node, ast.FunctionDef) and "property" in marks(node):
            lines.append(f"| `{node.name}` | `{ast.unparse(node.returns)}` |")
    return lines + [""]


def torch_text():
    """What programs call on a group; torch calls the rest."""
    lines = ["## coll.torch", "", *text_of(tree(f"{PACKAGE}/torch/__init__.py"), "coll.torch")]
    names, where = exported(tree(f"{PACKAGE}/torch/__init__.py"))
    for name in names:
        module = tree(f"{PACKAGE}/torch/{where[name]}.py")
        if name in classes_of(module):
            node = classes_of(module)[name]
            parts = [node]
            if name == "ProcessGroup":
                parts += [classes_of(tree(f"{PACKAGE}/torch/{f}.py"))[c] for f, c in (("_collectives", "Collectives"), ("_pairs", "Pairs"))]
            # Torch describes its own interface. What the sources describe was added to it, or does more.
            rows = []
            for part in parts:
                for member, definitions in members(part.body).items():
                    said = ast.get_docstring(definitions[0])
                    if said:
                        is_property = "property" in marks(definitions[0])
                        shown = member if is_property else signature(definitions[0], member, True).replace("\n", " ")
                        shown = re.sub(" +", " ", shown).replace("|", "\\|")
                        rows.append(f"| `{shown}` | {' '.join(said.split())} |")
            lines += [f"### {name}", "", *text_of(node, name)]
            if rows:
                lines += ["Beyond what torch describes:", "", "| method or property | does |", "|---|---|", *rows, ""]
        else:
            lines += callable_text(members(module.body)[name], name, "coll.torch.")
    return lines


def page():
    package = tree(f"{PACKAGE}/__init__.py")
    names, where = exported(package)
    files = {f: tree(f"{PACKAGE}/{f}.{'pyi' if f == '_coll' else 'py'}") for f in {*where.values(), "_coll"}}
    stub, errors = classes_of(files["_coll"]), classes_of(files["_errors"])
    shown = set(VALUES) | set(CLASSES) | {n for group in FUNCTIONS.values() for n in group} | set(errors)
    faults.extend(f"{n} is public, but no section of the reference names it" for n in names if n not in shown)
    lines = ["# Python reference", "", "Every public name of `coll` and `coll.torch`, as the sources declare and describe it. [python.md](python.md) and",
             "[torch.md](torch.md) explain how they are used. Made by `python3 python/tests/reference.py . --write`.", ""]
    for title, group in FUNCTIONS.items():
        lines += [f"## {title}", ""]
        for name in group:
            lines += callable_text(members(files[where[name]].body)[name], name, "coll.")
    lines += ["`coll.version` is the version of the library. `coll.ANY` stands for any rank and any tag.", ""]
    lines += types_text(files["_coll"], f"{PACKAGE}/_coll.pyi")
    for name in CLASSES:
        # Names that _comm takes over from the stub.
        own = classes_of(files[where[name]]).get(name)
        parts = [stub[IN_C.get(name, name)]] if name in IN_C or own is None else []
        lines += class_text(name, parts + ([own] if own is not None else []))
    lines += errors_text(files["_errors"], names) + torch_text()
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    text = page()
    if "--write" in sys.argv:
        with open(PAGE, "w") as f:
            f.write(text)
    try:
        with open(PAGE) as f:
            if f.read() != text:
                faults.append(f"{os.path.relpath(PAGE, ROOT)} is not what python/tests/reference.py --write makes")
    except FileNotFoundError:
        faults.append(f"{os.path.relpath(PAGE, ROOT)} is missing")
    print("\n".join(faults) or f"{text.count('```python')} signatures")
    return 1 if faults else 0


sys.exit(main())
