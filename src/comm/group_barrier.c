/*
 * The barrier of a group: see group_barrier.h.
 *
 * To the engine it is an operation that needs no plan, so it waits as every call does: with progress, under the
 * watchdog, with a call record. Frames go by value, and carry the sequence number and the signature of the call as all
 * frames do. A channel carries one frame per call, and its two slots suffice: a member posts the frame of the last call
 * after it took one of the first from everybody, directly or through others, so its receiver has a free slot or soon
 * will. Processes name the peers, since the ranks may be numbered anew after the first call.
 */
#include "comm/group_barrier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "call/blocking.h"
#include "core/fabric.h"

enum { SLOTS = 2, FIRST_USE = 0, OPEN = 1 };

/* One direction of a round. */
struct end {
	int process;
	struct coll_opened_transport *opened; /* NULL: not open */
	void *channel;
};

struct coll_group_barrier {
	struct coll_comm *comm;
	struct coll_intra_op op;
	struct coll_group_word mine, sum;
	uint32_t rounds;
	struct end ends[][2]; /* by round: enum coll_direction */
};

static_assert(sizeof(struct coll_group_word) == 24, "no padding travels");

/* ---- Rounds ---- */

static void combine(struct coll_group_word *sum, const struct coll_group_word *w)
{
	if (w->low_hash < sum->low_hash || (w->low_hash == sum->low_hash && w->low_rank < sum->low_rank)) {
		sum->low_hash = w->low_hash;
		sum->low_rank = w->low_rank;
	}
	if (w->high_hash > sum->high_hash || (w->high_hash == sum->high_hash && w->high_rank < sum->high_rank)) {
		sum->high_hash = w->high_hash;
		sum->high_rank = w->high_rank;
	}
}

/* Both directions of all rounds: a receiver that is open early lets its sender send at once. */
static coll_status open_all(struct coll_group_barrier *m)
{
	coll_status st = COLL_OK;

	for (uint32_t k = 0; k < m->rounds; k++)
		for (int d = COLL_DIR_RECV; d >= COLL_DIR_SEND && st == COLL_OK; d--) {
			const struct coll_comm_lane lane = {.number = (uint16_t)(COLL_LANES_GROUP + k),
			                                    .slots = SLOTS,
			                                    .slot_bytes = COLL_GROUP_SLOT_BYTES};
			struct end *e = &m->ends[k][d];
			struct coll_opened_transport *opened;

			if (e->opened)
				continue;
			st = coll_comm_channel_open(m->comm, e->process, lane, (enum coll_direction)d, &opened,
			                            &e->channel);
			e->opened = st == COLL_OK ? opened : NULL;
		}
	return st;
}

static coll_status send_word(struct coll_group_barrier *m, const struct coll_job *job, uint32_t round)
{
	const struct end *e = &m->ends[round][COLL_DIR_SEND];
	const struct coll_frame frame = {
	        .sequence = job->sequence, .signature = job->signature, .len_bytes = sizeof(m->sum)};
	void *slot;
	coll_status st = e->opened->table.slot(e->channel, sizeof(m->sum), &slot);

	if (st != COLL_OK)
		return st;
	memcpy(slot, &m->sum, sizeof(m->sum));
	return e->opened->table.post(e->channel, &frame);
}

static coll_status take_word(struct coll_group_barrier *m, const struct coll_job *job, uint32_t round,
                             struct coll_intra_state *s)
{
	const struct end *e = &m->ends[round][COLL_DIR_RECV];
	struct coll_group_word word;
	struct coll_frame frame;
	const void *view;
	coll_status st = e->opened->table.view(e->channel, &view, &frame);

	if (st != COLL_OK)
		return st;
	if (frame.sequence != job->sequence || frame.signature != job->signature || frame.len_bytes != sizeof(word)) {
		s->bad_frame = frame;
		return COLL_ERR_MISMATCH;
	}
	memcpy(&word, view, sizeof(word));
	st = e->opened->table.done(e->channel);
	if (st == COLL_OK)
		combine(&m->sum, &word);
	return st;
}

/* s->next counts frames sent, s->done frames taken. */
static coll_status poll(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_group_barrier *m = arg;
	coll_status st = COLL_OK;

	s->way = m->op.way;
	if (s->phase == FIRST_USE) {
		st = open_all(m);
		if (st != COLL_OK)
			return st;
		m->sum = m->mine;
		s->phase = OPEN;
		s->events++; /* peers may send now */
	}
	while (s->done < m->rounds && st == COLL_OK) {
		if (s->next == s->done) {
			st = send_word(m, job, s->next);
			s->next += st == COLL_OK;
		} else {
			st = take_word(m, job, s->done, s);
			s->done += st == COLL_OK;
		}
		s->events += st == COLL_OK;
	}
	return st;
}

static void where(void *arg, const struct coll_job *job, const struct coll_intra_state *s, struct coll_run_where *where)
{
	const struct coll_group_barrier *m = arg;
	const uint32_t round = s->done < m->rounds ? s->done : m->rounds - 1;
	const bool sends = s->phase == OPEN && s->next == s->done;

	(void)job;
	where->peer = coll_comm_rank_of(m->comm, m->ends[round][sends ? COLL_DIR_SEND : COLL_DIR_RECV].process);
	where->sends = sends;
	where->step = round;
	where->frame = s->bad_frame;
}

/* ---- Life ---- */

coll_status coll_group_barrier_create(struct coll_comm *comm, uint64_t hash, int rank)
{
	struct coll_group_barrier *m;
	uint32_t rounds = 0;

	assert(comm->size > 1);
	while (1LL << rounds < comm->size)
		rounds++;
	m = calloc(1, sizeof(*m) + rounds * sizeof(m->ends[0]));
	if (!m)
		return COLL_ERR_MEMORY;
	m->comm = comm;
	m->op = (struct coll_intra_op){
	        .poll = poll, .where = where, .arg = m, .way = COLL_WAY_GROUP_BARRIER, .matched = true};
	m->mine = (struct coll_group_word){hash, hash, rank, rank};
	m->rounds = rounds;
	for (uint32_t k = 0; k < rounds; k++) {
		const long long n = comm->size, step = 1LL << k;

		m->ends[k][COLL_DIR_SEND].process = coll_comm_process(comm, (int)((comm->rank + step) % n));
		m->ends[k][COLL_DIR_RECV].process = coll_comm_process(comm, (int)((comm->rank + n - step) % n));
	}
	comm->group_barrier = m;
	comm->group_op = &m->op;
	return COLL_OK;
}

void coll_group_barrier_move(struct coll_comm *from, struct coll_comm *to)
{
	to->group_barrier = from->group_barrier;
	to->group_op = from->group_op;
	to->group_barrier->comm = to;
	from->group_barrier = NULL;
	from->group_op = NULL;
	to->sequence = from->sequence;
	to->call = from->call;
	/* A member that is still in the first call may ask. Release: as in coll_begin_collective(). */
	coll_record_publish(&to->record, &to->call);
	atomic_store_explicit(&to->handed_in, to->sequence, memory_order_release);
}

void coll_group_barrier_destroy(struct coll_group_barrier **group_barrier)
{
	struct coll_group_barrier *m = *group_barrier;

	*group_barrier = NULL;
	if (!m)
		return;
	for (uint32_t k = 0; k < m->rounds; k++)
		for (int d = 0; d < 2; d++)
			if (m->ends[k][d].opened)
				m->ends[k][d].opened->table.channel_close(m->ends[k][d].channel);
	free(m);
}

void coll_group_barrier_words(const struct coll_comm *comm, struct coll_group_word *brought,
                              struct coll_group_word *result)
{
	*brought = comm->group_barrier->mine;
	*result = comm->group_barrier->sum;
}

coll_status coll_group_barrier_run(struct coll_comm *comm, const struct coll_comm *parent, struct coll_group_word *word)
{
	struct coll_group_word mine;
	char token[2] = {0};
	coll_status st;

	comm->parent = parent->id;
	st = coll_comm_call(comm, &(struct coll_call){.kind = COLL_KIND_BARRIER,
	                                              .record_kind = COLL_RECORD_GROUP,
	                                              .in = &token[0],
	                                              .out = &token[1],
	                                              .count = 1,
	                                              .type = COLL_U8});
	comm->parent = 0;
	if (st == COLL_OK)
		coll_group_barrier_words(comm, &mine, word);
	return st;
}
