/*
 * The context: this process in one job.
 *
 * It owns the instances of the transports, the links to other processes, the control plane and the
 * service thread. Links open on first use, at most one per process. A process is named by its rank
 * in the job. Communicators map their ranks to processes (rank_map.h).
 */
#ifndef COLL_CONTEXT_CONTEXT_H
#define COLL_CONTEXT_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/interrupt.h"
#include "bootstrap/bootstrap.h"
#include "context/crowd.h"
#include "context/sleep.h"
#include "control/control.h"
#include "device/device.h"
#include "record/recorder.h"
#include "transports/registry.h"

struct coll_async;
struct coll_comm;
struct coll_inspector;
struct coll_slow;
struct coll_close_error;
struct coll_service_client;
struct coll_closing;

enum { COLL_GONE_MAX = 256 };

/* The group that all contexts of one process share. The last of them frees it. */
struct coll_shared_group {
	struct coll_loop_group *group;
	atomic_int users;
	pthread_mutex_t lock;
	struct coll_context *ended; /* lock: nobody uses them; they wait for the last one */
	int nended;
};
coll_status coll_shared_group_create(struct coll_shared_group **group);
void coll_shared_group_release(struct coll_shared_group **group); /* *group may be NULL */

/* One transport in use: a complete table and its instance. */
struct coll_opened_transport {
	struct coll_transport table;
	struct coll_transport_caps caps;
	int position; /* in coll_transports and in the peer info */
	void *inst;
	void *hook;         /* state of the hook, to be freed, or NULL */
	atomic_bool active; /* it has links, so waiting threads poll it */
};

/* How the link to a process ended. */
enum coll_link_end {
	COLL_LINK_STANDS,    /* it has not ended, or there is none */
	COLL_LINK_BROKEN,    /* broken without an orderly close */
	COLL_LINK_UNREACHED, /* the host of the process does not answer */
	COLL_LINK_CLOSED     /* the process closed it in order */
};

/* A process of the job, as this process sees it. */
struct coll_process {
	struct coll_opened_transport *opened; /* chosen when the link opens, NULL before */
	void *link;
	bool refused;     /* no transport reaches it */
	_Atomic int down; /* enum coll_link_end: how its link broke; 0: it has not */
};

enum { COLL_SERVICE_CLIENTS_MAX = 3, COLL_INSIDE_LEVELS_MAX = 3 };

/* A level inside the hosts: which group of it each process is in. See comm/survey.h. */
struct coll_inside_level {
	const char *name; /* constant */
	uint32_t *group_of;
};

struct coll_changes;
struct coll_host_nics;
struct coll_other_jobs;

struct coll_context {
	const struct coll_context_hooks *hooks;
	struct coll_settings settings;
	struct coll_logger logger;
	struct coll_identity identity;
	uint64_t session_key[2];           /* from join on: session.h */
	struct coll_peer_info info;        /* of this process */
	struct coll_peer_info *peer_infos; /* `size` entries, in rank order */
	int rank, size;
	struct coll_interrupt interrupt; /* of the program; set before any wait */

	struct coll_opened_transport transports[COLL_TRANSPORTS];
	struct coll_opening *opening; /* of transports.c: what could not be opened, and why */
	int ntransports, wake_fd;
	struct coll_shared_group *group; /* if all ranks are in one process, else NULL */
	struct coll_context *next_ended; /* in group->ended */
	struct coll_process *processes;
	pthread_mutex_t links_lock; /* guards processes[] */

	struct coll_sleepers sleepers;
	struct coll_crowd crowd;
	_Atomic uint64_t sleeps, yields; /* of all waits so far */
	struct coll_async *async;        /* operations in flight; from open to close */
	atomic_uint alarm;               /* see control.h */
	atomic_uint wakes;               /* incremented when a rank wants to send a tagged message */
	struct coll_control *control;

	pthread_t service;
	bool service_running;
	int service_wake_fd;
	atomic_bool stopping;
	uint32_t mark;                                                       /* of this process: see base/fork.h */
	const struct coll_service_client *clients[COLL_SERVICE_CLIENTS_MAX]; /* registered before the thread starts */
	int nclients;

	/* The communicators. The control plane asks for their records. */
	pthread_mutex_t comms_lock;
	struct coll_comm *comms;
	struct coll_inspector *inspector; /* NULL without the service thread */
	struct coll_slow *slow;           /* watch/slow.h; the same */
	struct coll_changes *changes;     /* members/changes.h; NULL: there was none */
	struct coll_moment birth;         /* clock values that translate the time stamps of the recorder */
	bool birth_counter;
	atomic_bool dumped; /* a dump was written after a failure */
	/* A rank has failed because of this one and asks for a dump. 1: the service thread keeps one; 2: it has. */
	atomic_uint dump_asked;
	uint64_t gone[COLL_GONE_MAX]; /* ids of the communicators destroyed last */
	unsigned ngone;               /* number of all destroyed communicators */

	/* Number of users: communicators, streams and events. The last one to leave ends the
	 * context. */
	atomic_int users;
	pthread_mutex_t closing_lock; /* taken before comms_lock */
	struct coll_closing *closings;
	/* First error of a close that no call has reported; closing_lock. */
	struct coll_close_error *close_error;
	atomic_int nclosing;
	struct coll_history history; /* last operations of destroyed communicators */

	struct coll_device *device; /* of this rank, from create until close; NULL: it has none */

	atomic_uint intra_regions; /* see select/intra.c */

	struct coll_other_jobs *other_jobs; /* NULL: it does not look */

	size_t cache_bytes; /* size of one last-level cache of this host */
	int caches;
	int cpus;             /* CPUs that the ranks of this machine may use */
	bool dedicated_cores; /* no machine has more processes than cores; equal on all ranks */
	/* The time until all ranks that share a core have had their turn, relative to the usual
	 * one. It is 1 for up to four ranks per core. */
	uint32_t spin_scale;
	_Atomic uint32_t core_sharers; /* ranks that run when one yields: the others on its core, at least 1 */
	bool spare_core;               /* this machine has a second core for each of its processes */
	bool sites;                    /* COLL_SITE was told: see peer_infos */
	/* Waits spin: dedicated_cores, and no other job shares the cores; see other_jobs.h. */
	atomic_bool spins;
	uint32_t hosts;       /* number of distinct hosts */
	uint32_t *host_of;    /* by process */
	bool *oversubscribed; /* by host: its machine has more processes than cores */
	/* Set by the first communicator, before the program has it. */
	struct coll_inside_level inside[COLL_INSIDE_LEVELS_MAX];
	int ninside;
	struct coll_tuned *tuned; /* what COLL_TUNE_FILE says of the hosts; NULL: nothing, see comm/tuned.h */
	char *inside_text;        /* lines about them for people; NULL: they were not looked for */
};

/* Callbacks by which higher folders serve a context. comm/create.c fills the table. It is constant
 * and borrowed. */
struct coll_context_hooks {
	/* In coll_context_open(), before any peer is involved: checks the settings that higher
	 * folders read, and creates the state of operations in flight. */
	coll_status (*open)(struct coll_context *ctx, struct coll_error_box *err);
	/* In coll_context_join(), before the service thread starts: adds further clients of it. */
	void (*join)(struct coll_context *ctx);
	/* In coll_context_close(), before (stop) and after (close) the service thread stops. Called
	 * also after open or join has failed. */
	void (*stop)(struct coll_context *ctx);
	void (*close)(struct coll_context *ctx);
	/* The last user has left: waits for all communicators that are closing, then closes the
	 * context. */
	void (*end)(struct coll_context *ctx);
	/* Advances communicators that are closing, from coll_context_progress(). Any thread may
	 * call it. It returns at once. */
	void (*progress_closing)(struct coll_context *ctx);
	/* A communicator has failed. culprit: the process that caused it, -1: none; text: the error. Called on the
	 * thread that found the failure. That thread holds no lock. */
	void (*failed)(struct coll_context *ctx, int culprit, const char *text);
	/* As in struct coll_control_env. */
	bool (*answer)(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);
	void (*alert)(void *ctx, uint64_t comm);
	bool (*needs)(void *ctx, uint64_t comm);
	void (*carried)(void *ctx, int process, bool words, const uint8_t *bytes);
	void (*served)(void *ctx);
	/* In coll_context_close(), when the control plane is closed. */
	void (*closed)(struct coll_context *ctx);
};

/* First half of creation: everything that needs no peer. Fills ctx->info. group: connects the
 * contexts of one process, else NULL. */
coll_status coll_context_open(struct coll_context **ctx, const struct coll_context_hooks *hooks, const coll_config *cfg,
                              const struct coll_settings *settings, const struct coll_identity *id,
                              struct coll_shared_group *group, struct coll_error_box *err);

/* Second half of creation, with all peer infos (copied). Checks that settings agree and starts the
 * control links and the service thread. */
coll_status coll_context_join(struct coll_context *ctx, const struct coll_peer_info *peer_infos,
                              struct coll_error_box *err);

/* Send the goodbye of this process to all peers over the control plane, and free the context. */
void coll_context_close(struct coll_context **ctx);

/* Users of a context are communicators, streams and events. retain adds a user. leave removes one
 * and returns true if it was the last. release removes one, and the last one ends the context
 * (hooks->end). */
void coll_context_retain(struct coll_context *ctx);
bool coll_context_leave(struct coll_context *ctx);
/* The last user has left it. Where all ranks are in one process their contexts end together. NULL: others are in use,
 * and this one is theirs from now on. Else ctx, which those that ended before follow (next_ended): the caller closes
 * all of them. */
struct coll_context *coll_context_end(struct coll_context *ctx);
void coll_context_release(struct coll_context **ctx);
/* In a forked child: remove a user. The last one frees memory, and nothing else: threads, descriptors and shared memory
 * are the parent's. */
void coll_context_forget(struct coll_context *ctx);

/* The link to a process, opened on first use. Sets *opened and *link with OK and with AGAIN (still
 * connecting). */
coll_status coll_context_link(struct coll_context *ctx, int process, struct coll_opened_transport **opened, void **link,
                              struct coll_error_box *err);

/* The transport that would reach a process, without opening a link. The choice depends on the peer
 * infos alone, so both ends agree. NULL: none, and why is filled. */
struct coll_opened_transport *coll_context_choose(struct coll_context *ctx, int process, char *why, size_t why_bytes);

/* Whether a wait may keep its core for a while. */
static inline bool coll_context_spins(const struct coll_context *ctx)
{
	return atomic_load_explicit(&ctx->spins, memory_order_relaxed) &&
	       !atomic_load_explicit(&ctx->crowd.now, memory_order_relaxed);
}

/* What the system has counted of the link to a process. False: it is not up, or nothing is. */
bool coll_context_link_counts(struct coll_context *ctx, int process, struct coll_link_counts *counts);

/* Move bytes on all active transports. > 0: something happened. Does the work of the service thread
 * if there is none. */
int coll_context_progress(struct coll_context *ctx);

#endif
