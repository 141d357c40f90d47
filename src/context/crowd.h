/*
 * Whether others want the cores of this rank at the moment: other programs, loaders of data, other threads of this one.
 *
 * A wait that spins is the fastest while every rank has a core of its own. Where others want the core, the time that a
 * wait spends there is time that this rank and its peers do not get later. So a wait that has found nothing for a few
 * microseconds asks how long its thread was held up lately, ready to run but without a core. If that was a part of the
 * time that counts, waits sleep at once for a while, and everything that takes turns with other ranks does as much as
 * it can in each turn. Each rank finds out for itself, as its cores are; nothing that ranks agree upon depends on it.
 *
 * Where the kernel does not count it (/proc is not there) nobody is ever in the way, but for yields that take long.
 */
#ifndef COLL_CONTEXT_CROWD_H
#define COLL_CONTEXT_CROWD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct coll_context;

/* Of a context. Several threads may find out at once: each number stands for itself. */
struct coll_crowd {
	atomic_bool now;           /* waits sleep at once */
	_Atomic uint64_t until_ns; /* until then at least */
	_Atomic uint64_t lasts_ns; /* how long that was meant to be */
	struct {
		_Atomic uint64_t at_ns, held_up_ns; /* what the last look found in all */
		_Atomic uintptr_t thread;           /* for that one */
	} look[2];                                  /* of the progress thread, and of others */
};

/* A wait of this thread has found nothing for so long; UINT64_MAX: the progress thread. Whether waits sleep from now
 * on. */
bool coll_crowd_look(struct coll_context *ctx, uint64_t now_ns, uint64_t idle_ns);
/* This thread was held up for so long. */
void coll_crowd_held_up(struct coll_context *ctx, uint64_t now_ns, uint64_t held_up_ns);
/* Whether that is so long ago that waits go on as usual. */
bool coll_crowd_is_over(struct coll_context *ctx, uint64_t now_ns);

#endif
