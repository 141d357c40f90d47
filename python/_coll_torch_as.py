"""Called by `import torch` wherever the package coll is installed (entry point group torch.backends). COLL_TORCH_AS=gloo makes that backend
mean coll; without it nothing is imported here. The rest is coll/torch/_alias.py."""

import os


def load() -> None:
    if os.environ.get("COLL_TORCH_AS"):
        import coll.torch  # noqa: F401
