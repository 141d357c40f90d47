/*
 * The handshake of a control link: see handshake.h. It calls nobody of the control plane, and drops no link.
 */
#include "control/handshake.h"

#include <string.h>

/* The other end does not believe it: it only sees there whether this is the process that it looks for. */
static struct coll_proof challenge_proof(const struct coll_control *c, const uint64_t nonce[2],
                                         const struct coll_process_id *accepts)
{
	const struct coll_link_ends ends = {
	        .accepts = *accepts, .asked = {nonce[0], nonce[1]}, .size = (uint64_t)c->size};

	return coll_link_proof(c->env.job_key, COLL_LINK_CHALLENGES, &ends);
}

void coll_handshake_challenge(struct coll_control *c, struct coll_control_link *l, struct coll_hello *say)
{
	coll_nonce(&c->nonces, l->nonce);
	memcpy(say->nonce, l->nonce, sizeof(l->nonce));
	say->proof = challenge_proof(c, l->nonce, &c->env.self);
}

/* theirs: the other end's nonce. */
static struct coll_link_ends ends_of(const struct coll_control *c, const struct coll_control_link *l, int peer,
                                     const uint64_t theirs[2])
{
	const struct coll_process_id *other = &c->peer_infos[peer].id;
	const uint64_t *asked = l->inbound ? l->nonce : theirs, *answered = l->inbound ? theirs : l->nonce;

	return (struct coll_link_ends){.connects = l->inbound ? *other : c->env.self,
	                               .accepts = l->inbound ? c->env.self : *other,
	                               .asked = {asked[0], asked[1]},
	                               .answered = {answered[0], answered[1]},
	                               .size = (uint64_t)c->size};
}

static void seal(const struct coll_control *c, struct coll_control_link *l, const struct coll_link_ends *ends)
{
	coll_link_seal_begin(&l->seal_out, c->env.job_key, l->inbound ? COLL_LINK_SENDS_DOWN : COLL_LINK_SENDS_UP,
	                     ends);
	coll_link_seal_begin(&l->seal_in, c->env.job_key, l->inbound ? COLL_LINK_SENDS_UP : COLL_LINK_SENDS_DOWN, ends);
	l->sealed = true;
}

bool coll_handshake_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *challenge,
                          struct coll_hello *say)
{
	struct coll_link_ends ends;
	struct coll_proof want;

	if (l->inbound || l->sealed)
		return false;
	want = challenge_proof(c, challenge->nonce, &c->peer_infos[l->peer].id);
	if (!coll_proof_same(&challenge->proof, &want))
		return false;
	coll_nonce(&c->nonces, l->nonce);
	ends = ends_of(c, l, l->peer, challenge->nonce);
	memcpy(say->nonce, l->nonce, sizeof(l->nonce));
	say->rank = c->rank;
	say->proof = coll_link_proof(c->env.job_key, COLL_LINK_CONNECTS, &ends);
	l->welcome = coll_link_proof(c->env.job_key, COLL_LINK_ACCEPTS, &ends);
	seal(c, l, &ends);
	return true;
}

bool coll_handshake_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *hello,
                            struct coll_hello *say)
{
	struct coll_link_ends ends;
	struct coll_proof want;

	if (!l->inbound || l->sealed || hello->rank < 0 || hello->rank >= c->size || hello->rank == c->rank)
		return false;
	ends = ends_of(c, l, hello->rank, hello->nonce);
	want = coll_link_proof(c->env.job_key, COLL_LINK_CONNECTS, &ends);
	if (!coll_proof_same(&hello->proof, &want))
		return false;
	l->peer = hello->rank;
	say->proof = coll_link_proof(c->env.job_key, COLL_LINK_ACCEPTS, &ends);
	seal(c, l, &ends);
	return true;
}

bool coll_handshake_done(const struct coll_control_link *l, const struct coll_hello *welcome)
{
	return !l->inbound && !l->ready && l->greeted && coll_proof_same(&welcome->proof, &l->welcome);
}
