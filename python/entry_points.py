"""Put into the build tree what an installation has for `import torch`: the module of the hook, and metadata with the entry points of
pyproject.toml. usage: entry_points.py PYPROJECT HOOK DIRECTORY"""

import os
import shutil
import sys
import tomllib

project, hook, place = sys.argv[1:]
with open(project, "rb") as f:
    groups = tomllib.load(f)["project"]["entry-points"]
info = os.path.join(place, "libcoll.dist-info")
os.makedirs(info, exist_ok=True)
with open(os.path.join(info, "METADATA"), "w") as f:
    f.write("Metadata-Version: 2.1\nName: libcoll\nVersion: 0\n")
with open(os.path.join(info, "entry_points.txt"), "w") as f:
    for group, points in groups.items():
        f.write(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))
shutil.copy(hook, place)
