"""The words of the stub for the module in C: docstrings, and signatures in the form that inspect.signature() reads.

usage: docs.py _coll.pyi > docs_rows.h

Of a call with several forms (overload) the docstring of the first counts, and a parameter has a default if it has one in any form.
"""

import ast
import inspect
import sys


def signature(forms):
    """($self, a, b=None, *, c=1) of all forms of a function."""
    first, defaults = forms[0].args, {}
    for form in forms:
        placed = form.args.posonlyargs + form.args.args
        defaults.update(zip([a.arg for a in placed[len(placed) - len(form.args.defaults):]], form.args.defaults))
        defaults.update((a.arg, d) for a, d in zip(form.args.kwonlyargs, form.args.kw_defaults) if d is not None)

    def text(a):
        return a.arg + (f"={ast.unparse(defaults[a.arg])}" if a.arg in defaults else "")

    words = [text(a) for a in first.posonlyargs]
    if words:
        words.append("/")
    words += [text(a) for a in first.args]
    if first.vararg or first.kwonlyargs:
        words.append(f"*{first.vararg.arg if first.vararg else ''}")
    words += [text(a) for a in first.kwonlyargs]
    if first.kwarg:
        words.append(f"**{first.kwarg.arg}")
    return f"({', '.join(['$' + words[0], *words[1:]])})"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def rows(tree):
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        if doc := ast.get_docstring(kind):
            yield kind.name, "", doc
        functions = {}
        for node in kind.body:
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append(node)
        for name, forms in functions.items():
            doc = ast.get_docstring(forms[0])
            marks = {d.id for d in forms[0].decorator_list if isinstance(d, ast.Name)}
            if doc:
                yield kind.name, name, doc if "property" in marks else f"{name}{signature(forms)}\n--\n\n{inspect.cleandoc(doc)}"


if __name__ == "__main__":
    with open(sys.argv[1]) as stub:
        for kind, name, text in rows(ast.parse(stub.read())):
            print(f"{{{quoted(kind)}, {quoted(name)}, {quoted(text)}}},")
