/*
 * Notes: what is known of deaths and failures, kept once, passed on to every link.
 * Which links there are is control_peers.c's.
 */
#include "comm/control_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool known(const struct coll_control *c, const struct coll_note *n)
{
	for (int i = 0; i < c->nnotes; i++)
		if (c->notes[i].kind == n->kind && c->notes[i].comm == n->comm &&
		    (n->kind == COLL_NOTE_FAIL || c->notes[i].process == n->process))
			return true;
	return false;
}

static void say(struct coll_control *c, const struct coll_note *n)
{
	struct said *line = malloc(sizeof(*line));

	if (!line)
		return;
	line->level = COLL_LOG_INFO;
	line->next = NULL;
	if (n->kind == COLL_NOTE_DEATH && n->process >= 0 && n->process < c->size)
		snprintf(line->text, sizeof(line->text),
		         "rank %d on host %.63s (process %d) is dead or unreachable: %s (told by rank %d)", n->process,
		         c->cards[n->process].host_name, c->cards[n->process].process, n->text, n->origin);
	else
		snprintf(line->text, sizeof(line->text), "%s (told by rank %d)", n->text, n->origin);
	*c->said_end = line;
	c->said_end = &line->next;
}

void coll_control_spread(struct coll_control *c, const struct coll_note *n, const struct coll_control_link *from)
{
	struct coll_message m = {.type = COLL_MSG_NOTE};
	uint64_t one = 1;

	if (c->nnotes == NOTES_MAX || known(c, n))
		return;
	c->notes[c->nnotes++] = *n;
	if (n->kind == COLL_NOTE_DEATH && n->process >= 0 && n->process < c->size)
		c->peers[n->process].dead = true;
	say(c, n);
	m.u.note = *n;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i] != from && c->links[i]->ready)
			coll_link_queue(c->links[i], &m), coll_link_flush(c->links[i]),
			        coll_control_watch(c, c->links[i]);
	atomic_fetch_add_explicit(c->env.alarm, 1, memory_order_release);
	c->env.alert(c->env.ctx, n->kind == COLL_NOTE_FAIL ? n->comm : 0);
	if (write(c->env.wake_fd, &one, sizeof(one)) < 0) {
		/* Full: the sleeper is awake already. */
	}
}

void coll_control_death(struct coll_control *c, int peer, const char *cause)
{
	struct coll_note n = {
	        .kind = COLL_NOTE_DEATH, .status = COLL_ERR_PEER_DEAD, .process = peer, .origin = c->rank};

	if (c->closing || c->peers[peer].dead || c->peers[peer].life.left)
		return;
	snprintf(n.text, sizeof(n.text), "%.100s", cause);
	coll_control_spread(c, &n, NULL);
}

void coll_control_queue_notes(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m = {.type = COLL_MSG_NOTE};

	for (int i = 0; i < c->nnotes; i++) {
		m.u.note = c->notes[i];
		coll_link_queue(l, &m);
	}
}

/* ---- Interface ---- */

void coll_control_tell(struct coll_control *c, const struct coll_note *note)
{
	pthread_mutex_lock(&c->lock);
	if (note->kind != COLL_NOTE_DEATH)
		coll_control_spread(c, note, NULL);
	else if (note->process >= 0 && note->process < c->size)
		coll_control_death(c, note->process, note->text);
	coll_control_unlock(c);
}

int coll_control_notes(struct coll_control *c, int first, struct coll_note *notes, int max)
{
	int n;

	pthread_mutex_lock(&c->lock);
	n = c->nnotes;
	for (int i = first; i < n && i - first < max; i++)
		notes[i - first] = c->notes[i];
	coll_control_unlock(c);
	return n;
}
