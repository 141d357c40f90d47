/*
 * The front's state, shared by its files: the loop (collrun_front.c), the fate of the job (collrun_fate.c), the
 * processes that lead to the agents (collrun_link.c), and how a job begins (collrun_start.c).
 */
#ifndef COLLRUN_FRONT_H
#define COLLRUN_FRONT_H

#include "collrun.h"

#define MS    ((uint64_t)1000000)
#define NEVER UINT64_MAX

/* Ranks may still end by themselves; were told to; are killed; nothing more is waited for. */
enum stage { RUNNING, ENDING, TERMINATED, KILLED, GIVEN_UP };

enum link_state {
	LINK_OPEN,
	LINK_ENDING, /* the channel is closed, which is the order to kill everything; its process may run still */
	LINK_GONE
};

struct link {
	struct channel ch;
	struct host *host;
	enum link_state state;
	pid_t pid;       /* of the agent, or of the remote shell; 0: ended */
	int signalled;   /* what was sent to it last: 0, SIGTERM, SIGKILL */
	uint64_t end_ns; /* LINK_ENDING: when it is signalled next */
	bool marked;     /* the agent has begun to speak */
	bool hello, sent;
	int error_fd;        /* what a remote shell writes to its standard error, -1: none */
	struct buffer error; /* its last line, not complete yet */
	int shown;           /* lines of it that were shown */
	char last[160];      /* the last of them */
	char ended[96];      /* how its process ended, "" unknown */
	char why[160];       /* why it was closed */
	char name[256];      /* of the host, as it calls itself */
	char address[64];    /* by which the others may reach it, "" unknown */
};

/* What decides the exit status, by weight: of two that come together the heavier one is the cause. */
enum weight { EXITED_AFTER_ERROR, EXITED, DIED, FROM_OUTSIDE };

struct fate {
	int rank; /* -1: none yet */
	enum weight weight;
	int status; /* exit status of collrun */
	uint64_t at_ns;
	bool told;
	uint64_t told_at; /* lines written by then */
	struct link *lost;
	char text[512];
};

/* A name that a child process looks up, since the answer may take long. */
struct lookup {
	pid_t pid;
	int fd; /* -1: none under way */
	uint64_t until_ns;
};

struct front {
	struct options *o;
	struct output *out;
	struct link *links;
	int *link_of; /* by rank */
	bool *ended;  /* by rank */
	int live;     /* ranks not ended */
	int signals;
	int restarted; /* how often the job was started anew */
	struct fate fate;
	enum stage stage;
	bool outside; /* it is ended by a signal, by --timeout, or without a reader: output that nobody takes is dropped
	               */
	bool timed_out;
	int to_start_again; /* ranks that ended with status 75 */
	bool draining;      /* what is left is written, until drain_ns */
	uint64_t stage_ends_ns, deadline_ns, hello_ns, drain_ns;
	struct pollfd *polls;
	struct lookup lookup;
	char root[320];
	char key[40];
	bool root_known;
	int input;          /* our standard input, -1: not passed on */
	bool input_ended;   /* there is no more of it */
	bool input_closed;  /* rank 0 has been told so */
	size_t input_ahead; /* bytes sent to rank 0 and not taken yet */
};

/* ---- How a job begins (collrun_start.c) -------------------------------- */

/* Start one agent per host. When even that fails, the job is not begun. */
void start_agents(struct front *f);
/* A new key, and where the ranks will meet, as far as it can be known before the agents have said hello. False: the
 * job is not begun. */
bool start_choose_meeting(struct front *f);
/* Give their job to the agents that can have it by now. */
void start_send_jobs(struct front *f);
/* The name that is looked up has its answer, or its time is over. */
void start_looked_up(struct front *f);
void start_forget_lookup(struct front *f);
void start_reap_lookup(struct front *f);
/* Whether COLL_INTERFACE (filter) admits an interface. */
bool start_interface_wanted(const char *interface, const char *filter);

/* ---- Processes that lead to agents (collrun_link.c) --------------------- */

/* Fork the agent here, or the remote shell. False with errno. */
bool link_start(const struct front *f, struct link *l, struct host *h);
/* Text before the agent's mark is shown. True once the mark has come. */
bool link_find_mark(struct front *f, struct link *l);
/* One read of what the remote shell says; it is shown line by line. */
void link_read_error(struct front *f, struct link *l);
/* Close the channel; the process has for_ns to end by itself. Idempotent. */
void link_close(struct link *l, uint64_t for_ns, const char *why);
/* Whether its process has ended. Does not wait. */
bool link_reap(struct front *f, struct link *l);
/* LINK_ENDING: signal the process when its time is over. */
void link_advance(struct front *f, struct link *l);
/* "lost host b (why) with rank 3 and others" needs the first half. */
void link_tell_why(const struct front *f, const struct link *l, char *text, size_t len_bytes);

/* ---- The fate of the job (collrun_fate.c) ------------------------------- */

/* An agent could not be started, and so nothing is: those that were end, and get no job. It says why. */
void fate_not_begun(struct front *f, const char *why);
void fate_rank_exited(struct front *f, int rank, int32_t wait_status);
void fate_rank_not_run(struct front *f, int rank, const char *why, int len_bytes);
/* The host of a link is lost with the ranks there that have not ended. */
void fate_host_lost(struct front *f, struct link *l);
/* A signal for collrun: the job is ended, at once if it was being ended. */
void fate_signalled(struct front *f, int number);
/* Nobody reads our standard output. */
void fate_unread(struct front *f);
/* What the clock says. */
void fate_advance(struct front *f);
/* When fate_advance() has something to do next. */
uint64_t fate_next_ns(const struct front *f);
/* The last line: it names the cause. */
void fate_last_line(struct front *f);
/* A signal for all ranks. */
void fate_signal_ranks(struct front *f, int number);

#endif
