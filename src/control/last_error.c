/*
 * Last errors: see last_error.h. A note of a failure names the rank that reported it first, and the communicator. Who
 * waits for another member of that communicator, on one without the culprit, cannot know from it why that member ends.
 * So each process says its own last error on its links, behind its notes and before its goodbye. It is not passed on:
 * who is linked to a process knows, and the note of a death takes it along. A process that goes on after an error,
 * since a member has died or as its next calls show, may leave because of that; if it ends without a goodbye, that has
 * a cause of its own. Owns what is kept of each process.
 */
#include "control/last_error.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"

static bool keep(struct coll_held_error **at, const struct coll_note *error, uint64_t came_ns)
{
	if (!*at)
		*at = malloc(sizeof(**at));
	if (!*at)
		return false;
	**at = (struct coll_held_error){.note = *error, .came_ns = came_ns};
	return true;
}

/* An error from long before is not why a process ended. */
static bool recent(uint64_t came_ns, uint64_t end_ns)
{
	return came_ns + COLL_DELAY_NS(LAST_ERROR) > end_ns;
}

/* All have the death of a member from its own note. */
bool coll_control_keep_error(struct coll_control *c, const struct coll_note *error)
{
	if (!c->peers || !keep(&c->error, error, coll_clock_ns()))
		return false;
	c->error->goes_on = error->status == COLL_ERR_PEER_DEAD && error->process >= 0 && c->peers[error->process].dead;
	c->errors++;
	return true;
}

bool coll_control_outlives_error(struct coll_control *c, bool certain)
{
	if (!c->error || c->error->goes_on)
		return true;
	if (!certain && coll_clock_ns() <= c->error->came_ns + COLL_DELAY_NS(GOES_ON))
		return false;
	c->error->goes_on = true;
	c->errors++;
	return true;
}

bool coll_control_has_erred(struct coll_control *c)
{
	bool has = false;

	if (!c)
		return false;
	pthread_mutex_lock(&c->lock);
	has = c->error && recent(c->error->came_ns, coll_clock_ns());
	pthread_mutex_unlock(&c->lock);
	return has;
}

bool coll_control_is_parted(struct coll_control *c)
{
	bool is = false;

	if (!c)
		return false;
	pthread_mutex_lock(&c->lock);
	is = c->error && c->error->note.kind == COLL_GOSSIP_FAIL && recent(c->error->came_ns, coll_clock_ns());
	for (const struct coll_held_note *h = c->facts; h && !is; h = h->chain)
		is = h->note.kind == COLL_GOSSIP_DEATH && h->note.status == COLL_ERR_PEER_SILENT &&
		     recent(h->came_ns, coll_clock_ns());
	pthread_mutex_unlock(&c->lock);
	return is;
}

bool coll_control_error_unsaid(const struct coll_control *c, const struct coll_control_link *l)
{
	return l->told_errors != c->errors;
}

void coll_control_say_error(const struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m = {.type = COLL_MSG_ERROR};

	if (!coll_control_error_unsaid(c, l))
		return;
	m.u.error.note = c->error->note;
	if (c->error->goes_on)
		m.u.error.note.kind = COLL_GOSSIP_DEATH;
	m.u.error.age_ms = (coll_clock_ns() - c->error->came_ns) / COLL_NS_PER_MS;
	if (coll_link_queue(l, &m))
		l->told_errors = c->errors;
}

bool coll_control_on_error(struct coll_control *c, const struct coll_control_link *l, struct coll_stated_error *e)
{
	const uint64_t now = coll_clock_ns(), age_ns = e->age_ms * COLL_NS_PER_MS;
	struct coll_note *n = &e->note;

	n->text[sizeof(n->text) - 1] = 0;
	n->origin = l->peer;
	if (n->status <= COLL_AGAIN || n->process < -1 || n->process >= c->size)
		return false;
	if (e->age_ms < COLL_DELAY_LAST_ERROR_MS && age_ns < now)
		keep(&c->peers[l->peer].error, n, now - age_ns);
	return true;
}

void coll_control_explain(const struct coll_control *c, struct coll_note *death)
{
	const struct coll_held_error *e = c->peers[death->process].error;

	if (!e || e->note.kind != COLL_GOSSIP_FAIL || !recent(e->came_ns, coll_clock_ns()) ||
	    c->peers[death->process].unreached)
		return;
	death->after_status = e->note.status;
	death->after_process = e->note.process;
	memcpy(death->text, e->note.text, sizeof(death->text));
}

void coll_control_forget_errors(struct coll_control *c)
{
	free(c->error);
	for (int r = 0; r < c->size; r++)
		free(c->peers[r].error);
}

/* ---- Why it ended ---- */

/* Whether a note may be why a process ended in order of which nothing else is known. Silence is withdrawn by an answer
 * that came since. */
static bool may_explain(const struct coll_control *c, const struct coll_held_note *h, int process, uint64_t end_ns)
{
	const struct coll_note *n = &h->note;

	if (n->process == process || n->process < 0 || n->origin == c->rank || !recent(h->came_ns, end_ns))
		return false;
	if (n->status == COLL_ERR_PEER_SILENT && c->peers[n->process].life.last_answer_ns > h->came_ns)
		return false;
	return n->kind == COLL_GOSSIP_DEATH || n->comm != 0;
}

/* Its own report before that of another. */
static const struct coll_note *reported(const struct coll_control *c, int process, uint64_t end_ns)
{
	const struct coll_note *found = NULL;

	for (const struct coll_held_note *h = c->notes; h; h = h->next)
		if (may_explain(c, h, process, end_ns) && (h->note.origin == process || !found))
			found = &h->note;
	return found;
}

static const struct coll_note *death_of(const struct coll_control *c, int process)
{
	for (const struct coll_held_note *h = c->facts; h; h = h->chain)
		if (h->note.kind == COLL_GOSSIP_DEATH && h->note.process == process)
			return &h->note;
	return NULL;
}

bool coll_control_end_cause(struct coll_control *c, int process, bool presumed, struct coll_note *why)
{
	const struct coll_note *death, *other;
	const struct coll_held_error *e;
	const struct coll_peer_life *life;
	uint64_t end_ns;

	pthread_mutex_lock(&c->lock);
	life = &c->peers[process].life;
	end_ns = life->left ? life->left_ns : coll_clock_ns();
	e = c->peers[process].error;
	death = death_of(c, process);
	other = presumed ? reported(c, process, end_ns) : NULL;
	*why = (struct coll_note){.process = -1};
	/* A host that went out of reach ended nothing by itself: as in coll_control_explain(). */
	if (death && death->status == COLL_ERR_PEER_SILENT)
		e = NULL;
	if (e && recent(e->came_ns, end_ns) && (e->note.kind == COLL_GOSSIP_FAIL || !death)) {
		*why = e->note;
	} else if (death && death->after_status) {
		*why = *death;
		why->status = death->after_status;
		why->process = death->after_process;
	} else if (other) {
		*why = *other;
	}
	pthread_mutex_unlock(&c->lock);
	return why->status != COLL_OK;
}
