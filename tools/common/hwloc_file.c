/*
 * See hwloc_file.h. libhwloc 2.9 follows null pointers on a file that lacks a set of CPUs or of nodes, and who writes
 * such a file must get an error. So a child reads it, and leaves the graph in memory that both share: a graph has no
 * pointers. A file that is a pipe is read once.
 */
#include "tools/common/hwloc_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/graph.h"
#include "topology/graph_hwloc.h"

struct shared {
	bool done, read;
	char why[400];
	struct coll_graph graph;
};

static void read_in_child(struct shared *s, const char *path)
{
	struct coll_graph *g;

	prctl(PR_SET_DUMPABLE, 0);
	g = coll_graph_hwloc_file(path, s->why, sizeof(s->why));
	if (g)
		s->graph = *g;
	s->read = g != NULL;
	s->done = true;
	_exit(0);
}

static struct coll_graph *read_shared(struct shared *s, const char *path, char *why, size_t why_bytes)
{
	const pid_t child = fork();
	struct coll_graph *g = NULL;
	int status = 0;

	if (child == 0)
		read_in_child(s, path);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (child < 0)
		snprintf(why, why_bytes, "%s: fork: %s", path, strerror(errno));
	else if (!s->done)
		snprintf(why, why_bytes, "%s: hwloc crashes on this file%s%s", path, WIFSIGNALED(status) ? ": " : "",
		         WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
	else if (!s->read)
		snprintf(why, why_bytes, "%s", s->why);
	else if (!(g = coll_graph_new()))
		snprintf(why, why_bytes, "%s: out of memory", path);
	else
		*g = s->graph;
	return g;
}

struct coll_graph *coll_hwloc_file(const char *path, char *why, size_t why_bytes)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct coll_graph *g;

	if (s == MAP_FAILED) {
		snprintf(why, why_bytes, "%s: mmap: %s", path, strerror(errno));
		return NULL;
	}
	g = read_shared(s, path, why, why_bytes);
	munmap(s, sizeof(*s));
	return g;
}
