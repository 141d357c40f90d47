/*
 * The context: this process in one job. Owns the transports' instances, the
 * links to other processes (opened lazily, at most one per process), the control
 * plane and the service thread. A process is named by its rank in the job;
 * communicators map their ranks to processes (rank_map.h).
 */
#ifndef COLL_CONTEXT_CONTEXT_H
#define COLL_CONTEXT_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "bootstrap/bootstrap.h"
#include "context/sleep.h"
#include "control/control.h"
#include "record/recorder.h"
#include "transports/common/registry.h"

struct coll_async;
struct coll_comm;
struct coll_inspector;
struct coll_close_error;
struct coll_service_client;
struct coll_closing;

enum { COLL_GONE_MAX = 256 };

/* The group of the contexts of one process, freed with the last of them. */
struct coll_shared_group {
	struct coll_loop_group *group;
	atomic_int users;
};
coll_status coll_shared_group_create(struct coll_shared_group **group);
void coll_shared_group_release(struct coll_shared_group **group); /* NULL inside accepted */

/* One transport in use: a complete table and its instance. */
struct coll_opened_transport {
	struct coll_transport table;
	struct coll_transport_caps caps;
	int position; /* in coll_transports and in the peer info */
	void *inst;
	void *hook;         /* wrapping state to free, or NULL */
	atomic_bool active; /* has links: the waiter polls it */
};

/* A process of the job as seen from here. */
/* How the link to a process ended. */
enum coll_link_end {
	COLL_LINK_STANDS,    /* it has not, or there is none */
	COLL_LINK_BROKEN,    /* without a goodbye */
	COLL_LINK_UNREACHED, /* the process's host does not answer */
	COLL_LINK_CLOSED     /* the process has left */
};

struct coll_process {
	struct coll_opened_transport *opened; /* chosen when the link is opened, NULL before */
	void *link;
	bool refused;     /* no transport reaches it */
	_Atomic int down; /* enum coll_link_end: why its link broke; 0: it has not */
};

enum { COLL_SERVICE_CLIENTS_MAX = 2 };

struct coll_context {
	const struct coll_context_hooks *hooks;
	struct coll_settings settings;
	struct coll_logger logger;
	struct coll_identity identity;
	struct coll_peer_info info;        /* ours */
	struct coll_peer_info *peer_infos; /* size of them, in rank order */
	int rank, size;
	char host_id[64];

	struct coll_opened_transport transports[COLL_TRANSPORTS];
	int ntransports;
	struct coll_shared_group *group; /* ranks of one process, else NULL */
	struct coll_process *processes;
	pthread_mutex_t links_lock; /* guards processes[] */

	int wake_fd;
	struct coll_sleepers sleepers;
	_Atomic uint64_t contended_until_ns; /* see coll_context_yield */
	struct coll_async *async;            /* what is in flight; from open to close */
	atomic_uint alarm;                   /* see control.h */
	struct coll_control *control;

	pthread_t service;
	bool service_running;
	int service_wake_fd;
	atomic_bool stopping;
	const struct coll_service_client *clients[COLL_SERVICE_CLIENTS_MAX]; /* registered before it starts */
	int nclients;

	/* Communicators, for records asked by the control plane. */
	pthread_mutex_t comms_lock;
	struct coll_comm *comms;
	struct coll_inspector *inspector; /* NULL without the service thread */
	struct coll_moment birth;         /* clocks, to read the recorder's stamps by */
	bool birth_counter;
	atomic_bool dumped;           /* after a failure: once */
	uint64_t gone[COLL_GONE_MAX]; /* ids of those destroyed last */
	unsigned ngone;               /* ever */

	/* Communicators, streams and events; ends of communicators under way: the last one closes. */
	atomic_int users;
	pthread_mutex_t closing_lock; /* taken before comms_lock */
	struct coll_closing *closings;
	struct coll_close_error *close_error; /* the first failure met by an end nobody waited for; closing_lock */
	atomic_int nclosing;
	struct coll_history history; /* what those that are gone did last */

	atomic_uint intra_regions; /* see intra.c */

	size_t cache_bytes; /* of one last cache of this host */
	int caches;
	int cpus;             /* that the ranks of this machine may use */
	bool dedicated_cores; /* no machine has more processes than cores */
	/* How much longer than elsewhere it takes until all who share a core had their turn: 1 up to four ranks. */
	uint32_t spin_scale;
	uint32_t core_sharers; /* ranks that have a turn when one yields: those that share its core, 1 at least */
	bool spare_core;       /* this machine has a second core for each of its processes */
	uint32_t hosts;        /* distinct hosts */
	uint32_t *host_of;     /* by process */
	bool *oversubscribed;  /* by host: its machine has more processes than cores */
};

/* What upper folders do for a context: filled by comm/create.c, constant, borrowed. */
struct coll_context_hooks {
	/* In coll_context_open(), before any peer is involved: settings that upper folders read, calls in flight. */
	coll_status (*open)(struct coll_context *ctx, struct coll_error_box *err);
	/* In coll_context_join(), before the service thread starts: its further clients. */
	void (*join)(struct coll_context *ctx);
	/* In coll_context_close(), before and after the service thread stops; also when open or join have failed. */
	void (*stop)(struct coll_context *ctx);
	void (*close)(struct coll_context *ctx);
	/* The last user has left: waits for the ends under way, then closes the context. */
	void (*end)(struct coll_context *ctx);
	/* Ends under way, from coll_context_progress(): any thread, returns at once. */
	void (*progress_closing)(struct coll_context *ctx);
	/* A communicator has failed; text: the error. On the thread that found it, which holds no lock. */
	void (*failed)(struct coll_context *ctx, const char *text);
	/* As in struct coll_control_env. */
	bool (*answer)(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);
	void (*alert)(void *ctx, uint64_t comm);
	bool (*needs)(void *ctx, uint64_t comm);
};

/* First half of creation: everything that needs no peer; fills ctx->peer info. group:
 * joins contexts of one process, else NULL. */
coll_status coll_context_open(struct coll_context **ctx, const struct coll_context_hooks *hooks, const coll_config *cfg,
                              const struct coll_settings *settings, const struct coll_identity *id,
                              struct coll_shared_group *group, struct coll_error_box *err);

/* Second half: all peer infos (copied). Checks that settings agree, starts control
 * links and the service thread. */
coll_status coll_context_join(struct coll_context *ctx, const struct coll_peer_info *peer_infos,
                              struct coll_error_box *err);

/* Goodbye to everyone; frees all. */
void coll_context_close(struct coll_context **ctx);

/* Users: communicators, streams, events. One more; one less, true if it was the last; one less, and the last one ends
 * the context (hooks->end). */
void coll_context_retain(struct coll_context *ctx);
bool coll_context_leave(struct coll_context *ctx);
void coll_context_release(struct coll_context **ctx);

/* The link to a process, opened on first use. *opened and *link are set with OK
 * and with AGAIN (still connecting). */
coll_status coll_context_link(struct coll_context *ctx, int process, struct coll_opened_transport **opened, void **link,
                              struct coll_error_box *err);

/* The transport a process would be reached by, without opening: decided from
 * the peer infos alone, so both ends agree. NULL: none (why is filled). */
struct coll_opened_transport *coll_context_choose(struct coll_context *ctx, int process, char *why, size_t why_bytes);

/* Move bytes on all active transports; > 0 if anything happened. Also does the
 * service thread's work when there is none. */
int coll_context_progress(struct coll_context *ctx);

#endif
