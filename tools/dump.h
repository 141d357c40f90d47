/*
 * Dumps of the flight recorder, read from files and from running processes: JSON lines
 * (docs/guide/diagnosis.md), in memory. Members that a line lacks are 0, -1 or "".
 * Unknown lines and members are skipped, so newer dumps can be read.
 */
#ifndef COLL_TOOLS_DUMP_H
#define COLL_TOOLS_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dump_comm {
	uint64_t comm;
	int rank, size;
	uint64_t operations, unrecorded, sequence;
	bool in_call, aborted;
	int *members; /* processes by rank; NULL: ranks are processes */
	int nmembers;
	char name[32]; /* "": it has none */
};

enum dump_state { DUMP_QUEUED, DUMP_RUNNING, DUMP_ENDED };

struct dump_op {
	uint64_t comm, index, sequence, count;
	char kind[24], dtype[16], op[16], signature[12], result[48], way[24];
	int root, stream, status; /* root: the peer of a message; stream -1: blocking */
	int tag;                  /* of a message with a tag; -1: any */
	enum dump_state state;
	uint64_t queued_ns, begin_ns, end_ns; /* since 1970, 0: not yet */
	int waits_for, step, lane;
};

struct dump_peer {
	int process, pid;
	char host[64];
	bool left;
	char after[300]; /* the error that it left after; "": none is known */
	unsigned unanswered;
	uint64_t heard_ns;
	uint64_t comm, sequence;
	bool in_call;
	int waits_for;
	char doing[192]; /* "": it has not said */
};

struct dump_note {
	char about[16];
	int process, origin, status;
	int after_status; /* of a death: the error that it ended after, which text is; 0: none */
	uint64_t comm;
	char text[300];
};

enum { DUMP_SLOW_LINKS = 4 };

/* How a process has come on lately (src/watch/slow.h). Rates in kB/s. */
struct dump_slow {
	int window_ms; /* 0: it is too young to say */
	int waited_ms, in_call_ms, waits_for, waits_for_ms, behind_ms, usual_kb, median_kb;
	int to[DUMP_SLOW_LINKS], kb[DUMP_SLOW_LINKS], links; /* those that are far behind */
};

/* What one context said at one moment. */
struct dump {
	char reason[16], host[64], error[700], library[16];
	int format, process, processes, pid;
	uint64_t job, now_ns, born_ns;
	struct dump_comm *comms;
	size_t ncomms;
	struct dump_op *ops;
	size_t nops;
	struct dump_peer *peers;
	size_t npeers;
	struct dump_note *notes;
	size_t nnotes;
	struct dump_slow slow;
	bool whole;    /* its last line is there */
	bool heard;    /* what another process was told by this one, which was not asked itself */
	char name[64]; /* of the listener that sent it; "": a file */
};

struct dump_list {
	struct dump *dumps;
	size_t n;
};

/* Append what a text holds. False with a sentence in why: not a dump, or no memory.
 * A dump that breaks off is kept as far as it goes. */
bool dump_parse(const char *text, size_t len_bytes, struct dump_list *list, char *why, size_t why_bytes);
bool dump_read_file(const char *path, struct dump_list *list, char *why, size_t why_bytes);
/* Move all of more into list. False: no memory. */
bool dump_list_append(struct dump_list *list, struct dump_list *more);
void dump_list_free(struct dump_list *list);

const struct dump_comm *dump_find_comm(const struct dump *d, uint64_t comm);
/* The process a rank of a communicator is; -1: not known. */
int dump_process(const struct dump *d, uint64_t comm, int rank);
/* "all_reduce(count=8, f32, sum) number 12" */
/* Between two ranks; and whether it has a tag, and a peer of -1 is any. */
bool dump_is_message(const struct dump_op *o);
bool dump_has_tag(const struct dump_op *o);

void dump_describe(const struct dump_op *o, char *buf, size_t len_bytes);

#endif
