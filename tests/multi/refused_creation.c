/*
 * See refused.h: the ways to create a communicator.
 */
#include "refused.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *destroys(void *comm)
{
	coll_comm_destroy(comm);
	return NULL;
}

unsigned refused_created_together(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	struct rank r = {.k = k, .mode = mode};
	coll_comm *comms[2] = {NULL, NULL};
	pthread_t other;

	refused_arm(&r);
	r.status = refused_create(comms, 2);
	refused_disarm(&r);
	if (r.status == COLL_OK) { /* without what was refused, if anything */
		pthread_create(&other, NULL, destroys, &comms[1]);
		coll_comm_destroy(&comms[0]);
		pthread_join(other, NULL);
	} else {
		const coll_error *e = coll_last_error(NULL);

		CHECK(r.status == COLL_ERR_MEMORY && e->status == r.status && strstr(e->message, "memory"),
		      "allocation %u: %s: %s", k, coll_status_string(r.status), e->message);
	}
	CHECK(k > 0 || r.status == COLL_OK);
	return r.refused;
}

/* Two processes' ways of creating, in threads, with an all-gather of their own. */
struct table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *peer_infos;
	int size, come;
	bool failed;
};

struct seat {
	struct table *table;
	int rank;
	coll_status status;
	coll_comm *comm;
	unsigned k, refused;
	enum refusing mode;
};

static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct seat *s = arg;
	struct table *t = s->table;
	int result;

	pthread_mutex_lock(&t->lock);
	if (!t->peer_infos)
		t->peer_infos = (char *)refusing_ints((size_t)t->size * len_bytes / sizeof(int) + 1);
	memcpy(t->peer_infos + (size_t)s->rank * len_bytes, mine, len_bytes);
	t->come++;
	pthread_cond_broadcast(&t->changed);
	while (t->come % t->size && !t->failed)
		pthread_cond_wait(&t->changed, &t->lock);
	result = t->failed;
	if (!result)
		memcpy(all, t->peer_infos, (size_t)t->size * len_bytes);
	pthread_mutex_unlock(&t->lock);
	return result;
}

static void *sits(void *arg)
{
	const char *settings[] = {refused_transports,
	                          "COLL_TIMEOUT_MS=4000",
	                          "COLL_ARRIVAL_TIMEOUT_MS=4000",
	                          "COLL_DEBUG=error",
	                          NULL,
	                          NULL,
	                          NULL};
	struct seat *s = arg;
	struct rank r = {.k = s->k, .mode = s->mode};
	coll_config cfg = COLL_CONFIG_INIT;

	if (s->table->size > 2) {
		settings[4] = s->rank < s->table->size / 2 ? "COLL_HOST_ID=a" : "COLL_HOST_ID=b";
		settings[5] = "COLL_LEVELS=host,numa";
	}
	cfg.rank = s->rank;
	cfg.size = s->table->size;
	cfg.exchange = exchange;
	cfg.exchange_arg = s;
	cfg.log = getenv("VERBOSE") ? NULL : refused_quiet;
	cfg.settings = settings;
	s->comm = NULL;
	refused_arm(&r);
	s->status = coll_comm_create(&s->comm, &cfg);
	refused_disarm(&r);
	s->refused = r.refused;
	if (s->status != COLL_OK) {
		const coll_error *e = coll_last_error(NULL);
		/* As in refused_told(): a link that ends for want of memory is seen by both of its ends. */
		const bool deaf = s->status == COLL_ERR_PEER_DEAD &&
		                  (s->mode == REFUSING_ALL_FROM || strstr(e->message, "the link between"));

		CHECK(s->k == 0 || deaf ||
		              (s->status == COLL_ERR_MEMORY && e->status == s->status && strstr(e->message, "memory")),
		      "allocation %u: %s: %s", s->k, coll_status_string(s->status), e->message);
		CHECK(!s->comm);
		pthread_mutex_lock(&s->table->lock);
		s->table->failed = true;
		pthread_cond_broadcast(&s->table->changed);
		pthread_mutex_unlock(&s->table->lock);
	}
	coll_comm_destroy(&s->comm);
	return NULL;
}

/* More than two ranks: half of them on each of two hosts, of which they ask what is inside. */
static unsigned created_by(int size, unsigned k, enum refusing mode)
{
	struct table t = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .size = size};
	struct seat s[4];
	pthread_t other[4];

	for (int r = 0; r < size; r++)
		s[r] = (struct seat){.table = &t, .rank = r, .k = r == 0 ? k : 0, .mode = mode};
	for (int r = 1; r < size; r++)
		pthread_create(&other[r], NULL, sits, &s[r]);
	sits(&s[0]);
	for (int r = 1; r < size; r++)
		pthread_join(other[r], NULL);
	for (int r = 0; r < size; r++)
		CHECK(k > 0 || s[r].status == COLL_OK, "rank %d: %s", r, coll_status_string(s[r].status));
	refusing_free(t.peer_infos);
	return s[0].refused;
}

unsigned refused_created_apart(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	return created_by(2, k, mode);
}

unsigned refused_created_on_hosts(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	return created_by(4, k, mode);
}

unsigned refused_created_alone(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	struct rank r = {.k = k, .mode = mode};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	cfg.rank = 0;
	cfg.size = 1;
	cfg.log = refused_quiet;
	refused_arm(&r);
	r.status = coll_comm_create(&comm, &cfg);
	refused_disarm(&r);
	if (r.status != COLL_OK) {
		const coll_error *e = coll_last_error(NULL);

		CHECK(r.status == COLL_ERR_MEMORY && e->status == r.status && strstr(e->message, "memory") && !comm,
		      "allocation %u: %s: %s", k, coll_status_string(r.status), e->message);
	}
	CHECK(k > 0 || r.status == COLL_OK);
	coll_comm_destroy(&comm);
	return r.refused;
}
