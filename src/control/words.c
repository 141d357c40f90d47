/*
 * See words.h. Words go one way: for each change their writer opens a connection to the Unix listener of the reader,
 * sends one message and closes it. What was sent lies in the queue of the listener or in the socket until the reader
 * takes it, also when the writer is dead by then, and when the reader was stopped meanwhile. So a reader that has seen
 * the end of a writer, and behind that has emptied both, has all that the writer left there.
 *
 * No handshake comes first, so the message proves itself: a keyed hash over writer, reader and bytes. One that is
 * repeated is harmless, since words only grow.
 */
#include "control/words.h"

#include <errno.h>
#include <string.h>

#include "base/planted.h"
#include "control/one_host.h"
#include "control/state.h"
#include "net/net.h"

bool coll_control_is_here(const struct coll_control *c, int peer)
{
	const struct coll_peer_info *it = &c->peer_infos[peer], *us = &c->peer_infos[c->rank];

	return it->control_unix[0] && us->control_unix[0] && coll_one_host(it, us) && coll_one_network(it, us);
}

static struct coll_proof proof_of(const struct coll_control *c, int writer, int reader,
                                  const struct coll_carried *carried)
{
	static const uint64_t what = 0x776f726473; /* a proof of another kind of message is none of this */

	return COLL_PROOF(c->env.job_key, COLL_SAID(what), COLL_SAID(c->peer_infos[writer].id),
	                  COLL_SAID(c->peer_infos[reader].id), COLL_SAID(*carried));
}

/* Refused in one network namespace: nobody listens there any more. */
int coll_control_connect_here(struct coll_control *c, int peer)
{
	bool in_progress = false;
	const int fd = coll_link_connect(&c->peer_infos[peer], NULL, 0, &in_progress);

	if (fd < 0 && errno == ECONNREFUSED)
		c->peers[peer].ended = true;
	if (fd < 0 || !in_progress)
		return fd;
	coll_net->close(fd);
	return -1;
}

enum coll_words_left coll_control_leave_words(struct coll_control *c, int peer, const uint8_t bytes[COLL_CARRIED_BYTES])
{
	struct coll_message m = {
	        .magic = COLL_PEER_INFO_MAGIC, .version = COLL_PEER_INFO_VERSION, .type = COLL_MSG_WORDS};
	const int fd = c->peers[peer].ended ? -1 : coll_control_connect_here(c, peer);
	bool sent;

	if (c->peers[peer].ended)
		return COLL_WORDS_GONE;
	if (fd < 0)
		return COLL_WORDS_AGAIN;
	m.u.carried.writer = c->rank;
	memcpy(m.u.carried.bytes, bytes, COLL_CARRIED_BYTES);
	m.check = proof_of(c, c->rank, peer, &m.u.carried);
	sent = planted(CHANGE_NOT_LEFT) || coll_net->send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m);
	coll_net->close(fd);
	return sent ? COLL_WORDS_WRITTEN : COLL_WORDS_AGAIN;
}

bool coll_control_on_words(struct coll_control *c, const struct coll_message *m)
{
	const struct coll_carried *w = &m->u.carried;
	struct coll_proof want;

	if (c->size == 0 || w->writer < 0 || w->writer >= c->size || w->writer == c->rank || !c->env.carried)
		return false;
	want = proof_of(c, w->writer, c->rank, w);
	if (!coll_proof_same(&want, &m->check))
		return false;
	c->env.carried(c->env.ctx, w->writer, true, w->bytes);
	return true;
}

/* One send on a new connection: all of it is there, or nothing. */
void coll_control_take_words(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m;

	if (!l->inbound || l->ready || l->in_bytes > 0 ||
	    coll_net->recv(l->fd, &m, sizeof(m), MSG_PEEK) != (ssize_t)sizeof(m) || m.magic != COLL_PEER_INFO_MAGIC ||
	    m.version != COLL_PEER_INFO_VERSION || m.type != COLL_MSG_WORDS)
		return;
	coll_control_on_words(c, &m);
}
