"""python -m coll.torch [-m MODULE | SCRIPT] [ARGUMENT]... runs a program whose backend "gloo" then is coll; see _alias.py."""

from coll.torch._script import main

if __name__ == "__main__":
    main()
