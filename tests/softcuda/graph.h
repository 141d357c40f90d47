/*
 * What capture.c and graph.c share: a graph is a list of nodes in the order of capture, which is
 * an order in which they can run; the nodes of one captured stream are a branch.
 */
#ifndef SOFTCUDA_GRAPH_H
#define SOFTCUDA_GRAPH_H

#include "tests/softcuda/soft.h"

struct CUgraphNode_st {
	struct soft_work work;
	CUgraphNode *deps;
	int deps_count;
	int index, branch;
	bool mark;
};

struct soft_object {
	CUuserObject object;
	unsigned count;
	struct soft_object *next;
};

struct CUgraph_st {
	CUgraphNode *nodes;
	int count, branches;
	struct soft_object *objects;
	bool capturing, dead;
	CUgraph next;
};

/* A new graph, in the list of all. */
CUgraph soft_graph_new(void);
CUgraphNode soft_graph_add(CUgraph graph, struct soft_work *work, int branch, CUgraphNode *deps, int deps_count);
/* Let go of the nodes and the objects. */
void soft_graph_end(CUgraph graph);

#endif
