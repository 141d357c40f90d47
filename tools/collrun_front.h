/*
 * The front's state, shared by its two files: what happens (collrun_front.c) and
 * how it begins (collrun_start.c).
 */
#ifndef COLLRUN_FRONT_H
#define COLLRUN_FRONT_H

#include "collrun.h"

enum stage { RUNNING, ENDING, TERMINATED, KILLED, GIVEN_UP };

struct link {
	struct channel ch;
	struct host *host;
	pid_t pid;
	bool hello, sent, gone;
	char name[256];   /* of the host, as it calls itself */
	char address[64]; /* by which the others may reach it, "" unknown */
};

struct fate {
	int rank; /* -1: none yet */
	bool by_signal;
	int status; /* exit status of collrun */
	uint64_t at_ns;
	bool told;
	char text[512];
};

struct front {
	struct options *o;
	struct output *out;
	struct link *links;
	int *link_of; /* by rank */
	bool *ended;  /* by rank */
	int live;     /* ranks not ended */
	int signals;
	struct fate fate;
	enum stage stage;
	uint64_t stage_ends_ns, deadline_ns, hello_ns;
	char root[320];
	char key[40];
	bool root_known;
	bool input_ended;
	size_t input_ahead; /* bytes sent to rank 0 and not taken yet */
};

/* Start one agent per host. False when even that fails (it says why). */
bool start_agents(struct front *f);
/* Where the ranks will meet, as far as it can be known before the agents have
 * said hello. */
bool start_choose_meeting(struct front *f); /* false: it has said why */
/* Give their job to the agents that can have it by now. */
void start_send_jobs(struct front *f);
/* Whether COLL_INTERFACE (filter) admits an interface. */
bool start_interface_wanted(const char *interface, const char *filter);

#endif
