"""How long it takes until the others are told: prints the times. usage: ends.py BUILD-DIRECTORY PYTHON

On an idle machine: Ctrl-C in a call whose peer is absent ends it within 0.5 s, and the others read why within 2 s; a rank that is
killed in the middle of DDP is named within 2 s (with torch); an exception shows on the others with its text.
"""

import os
import subprocess
import sys

BUILD, PYTHON = os.path.abspath(sys.argv[1]), sys.argv[2]
HEAD = ("import array, os, signal, sys, threading, time, coll\nx = array.array('f', [1, 2])\nstart = sys.argv[1] + '/at'\n"
        "def now(): open(start, 'w').write(str(time.time()))\n"
        "def say(what, e): print(f'{what}: {time.time() - float(open(start).read()):.3f} s, {type(e).__name__}: {e}', flush=True)\n")
CTRL_C = ("c = coll.init()\nc.barrier()\nif c.rank == 0:\n"
          "  threading.Timer(0.5, lambda: (now(), os.kill(os.getpid(), signal.SIGINT))).start()\n"
          "  try: c.all_reduce(x)\n  except KeyboardInterrupt as e: say('Ctrl-C', e)\n"
          "else:\n  time.sleep(0.6)\n  try: c.recv(x, 0)\n  except coll.CollError as e: say('told of Ctrl-C', e)\n")
RAISED = ("c = coll.init()\nc.barrier()\nif c.rank == 1:\n  now()\n  raise ValueError('no such file')\n"
          "try: c.all_reduce(x)\nexcept coll.CollError as e: say('told of an exception', e)\n")
KILLED = ("import torch, torch.distributed as dist, coll.torch\ntorch.set_num_threads(1)\ndist.init_process_group('coll')\n"
          "rank = dist.get_rank()\n"
          "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]))\n"
          "try:\n  for step in range(100000):\n"
          "    if rank == 1 and step == 50: now(); os.kill(os.getpid(), signal.SIGKILL)\n"
          "    net(torch.ones(8, 64)).sum().backward()\n"
          "except Exception as e: say('told of a kill in DDP', e)\nos._exit(0)\n")


def main():
    import tempfile
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env["PYTHONPATH"] = os.path.join(BUILD, "python")
    for program, ranks in ((CTRL_C, 2), (RAISED, 2), (KILLED, 3)):
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run([os.path.join(BUILD, "tools", "collrun"), "-n", str(ranks), PYTHON, "-c", HEAD + program, place],
                                  capture_output=True, text=True, timeout=120, env=env)
        print("".join(line[:300] + "\n" for line in done.stdout.splitlines()), end="")


main()
