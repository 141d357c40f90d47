"""All-reduces among actors of Ray, two on each of two nodes. Rank 0 makes a unique id, and Ray's messages carry it to the others:
it holds the address and the key, and no port or file is to be agreed on. On a running cluster: python3 all_reduce.py"""

from array import array

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import coll

NODES, PER_NODE, CALLS = 2, 2, 20
SIZE = NODES * PER_NODE


@ray.remote(num_cpus=1)
class Rank:
    def unique_id(self) -> coll.UniqueId:
        return coll.unique_id()  # this process hosts the meeting

    def join(self, rank: int, unique_id: coll.UniqueId) -> str:
        self.comm = coll.init(rank, SIZE, id=unique_id)
        return ", ".join(sorted({self.comm.transport(r) for r in range(SIZE) if r != rank}))

    def sums(self, count: int) -> int:
        """The number of wrong elements of CALLS all-reduces."""
        wrong = 0
        for call in range(CALLS):
            mine = array("d", (self.comm.rank * i + call for i in range(count)))
            total = self.comm.all_reduce(mine)
            wrong += sum(x != SIZE * (SIZE - 1) // 2 * i + SIZE * call for i, x in enumerate(total))
        return wrong

    def close(self) -> None:
        self.comm.close()


ray.init()
group = placement_group([{"CPU": PER_NODE}] * NODES, strategy="STRICT_SPREAD")
ray.get(group.ready())
ranks = [Rank.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, r // PER_NODE)).remote() for r in range(SIZE)]
unique_id = ray.get(ranks[0].unique_id.remote())
transports = ray.get([actor.join.remote(r, unique_id) for r, actor in enumerate(ranks)])
print("rank 0 reaches the others over", transports[0])
wrong = sum(sum(ray.get([actor.sums.remote(count) for actor in ranks])) for count in (1, 1000, 20000))
ray.get([actor.close.remote() for actor in ranks])
print(f"{SIZE} ranks on {NODES} nodes: {3 * CALLS} all-reduces, {wrong} wrong")
raise SystemExit(wrong > 0)
