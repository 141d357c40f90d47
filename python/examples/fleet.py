"""A server hands requests to workers, and loses none when workers are killed. python fleet.py [WORKERS] [REQUESTS] [KILLS]

It kills some itself, each with a request at hand. The next call names the dead worker; its request goes to another, and messages among the
living go on. The members of a communicator are fixed, so a new worker comes in a communicator of its own, of the server and itself.
"""

from __future__ import annotations

import array
import contextlib
import multiprocessing
import os
import signal
import sys
from collections import deque

import coll

REQUEST, ANSWER, SERVER = 1, 2, 0
context = multiprocessing.get_context("spawn")


def work(rank: int, size: int, key: bytes) -> None:
    with coll.init(rank, size, id=key) as comm:
        x = array.array("d", [0, 0])  # number of the request, value
        while True:
            comm.recv(x, SERVER, tag=REQUEST)
            if x[0] < 0:
                return
            x[1] *= x[1]
            comm.send(x, SERVER, tag=ANSWER)


class Team:
    """A communicator, its living workers, and the request that each is at."""

    def __init__(self, workers: int) -> None:
        key = coll.unique_id()
        self.processes = {r: context.Process(target=work, args=(r, workers + 1, key)) for r in range(1, workers + 1)}
        for process in self.processes.values():
            process.start()
        self.comm = coll.init(SERVER, workers + 1, id=key)
        self.alive, self.busy = set(self.processes), dict[int, int]()
        self.answer = array.array("d", [0, 0])
        self.receive = self.comm.irecv(self.answer, coll.ANY, ANSWER)

    def give(self, worker: int, number: int) -> None:
        self.busy[worker] = number
        self.comm.send(array.array("d", [number, number]), worker, tag=REQUEST)

    def collect(self) -> tuple[int, float] | None:
        """An answer of any worker, if there is one soon."""
        try:
            message = self.receive.wait(0.01)
        except coll.PeerError:
            self.receive = self.comm.irecv(self.answer, coll.ANY, ANSWER)
            raise
        except TimeoutError:
            return None
        self.busy.pop(message.source, None)
        got = int(self.answer[0]), self.answer[1]
        self.receive = self.comm.irecv(self.answer, coll.ANY, ANSWER)
        return got

    def lose(self, worker: int) -> list[int]:
        """What it was at."""
        self.alive.remove(worker)
        self.processes[worker].join()
        return [self.busy.pop(worker)] if worker in self.busy else []

    def end(self) -> None:
        for worker in self.alive:
            with contextlib.suppress(coll.PeerError):
                self.comm.send(array.array("d", [-1, 0]), worker, tag=REQUEST)
        self.receive.cancel()
        with contextlib.suppress(coll.PeerError):
            self.comm.close()
        for process in self.processes.values():
            process.join()


def serve(workers: int, requests: int, kills: int) -> None:
    teams, todo, answers = [Team(workers)], deque(range(requests)), dict[int, float]()
    victims = {requests * k // kills for k in range(kills)}
    while len(answers) < requests:
        for team in list(teams):
            try:
                for worker in sorted(team.alive - set(team.busy)):
                    if todo:
                        number = todo.popleft()
                        team.give(worker, number)
                        if number in victims:
                            victims.remove(number)
                            os.kill(team.processes[worker].pid or 0, signal.SIGKILL)
                got = team.collect()
                if got is not None:
                    answers[got[0]] = got[1]
            except coll.PeerError as error:  # error.lost is "peer": the others of this communicator go on
                if error.rank not in team.alive:  # a receive and a send have both told
                    continue
                again = team.lose(error.rank)
                todo.extendleft(again)
                teams.append(Team(1))
                print(f"lost a {error.lost}, rank {error.rank}; again: {again}; another worker has come", flush=True)
                if not team.alive:
                    teams.remove(team)
                    team.end()
    for team in teams:
        team.end()
    assert all(answers[i] == i * i for i in range(requests))
    print(f"answered {len(answers)} of {requests}")


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:] + ["3", "12", "1"][len(sys.argv) - 1:]))
