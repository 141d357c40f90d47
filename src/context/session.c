/*
 * The session key: see session.h.
 */
#include "context/session.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/errno_text.h"
#include "base/siphash.h"
#include "net/net.h"

/* Nobody waits here for a machine that has just started to have random bytes: GRND_NONBLOCK, and EAGAIN is the cause.
 */
coll_status coll_session_contribute(struct coll_peer_info *info, struct coll_error_box *err)
{
	if (coll_net->random(info->contribution, sizeof(info->contribution), GRND_NONBLOCK) ==
	    sizeof(info->contribution))
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes for the key of the job: getrandom: %s",
	                      coll_errno_text(errno).text);
}

void coll_session_key(const uint64_t secret[2], const struct coll_peer_info *infos, int size, uint64_t key[2])
{
	struct coll_siphash s = coll_siphash_wide_begin(secret);

	for (int r = 0; r < size; r++)
		for (size_t i = 0; i < 2; i++)
			coll_siphash_word(&s, infos[r].contribution[i]);
	coll_siphash_rest(&s, NULL, (size_t)size * sizeof(infos->contribution));
	coll_siphash_wide_end(&s, key);
	explicit_bzero(&s, sizeof(s));
}

void coll_session_forget(struct coll_peer_info *infos, int size)
{
	for (int r = 0; r < size; r++)
		explicit_bzero(infos[r].contribution, sizeof(infos[r].contribution));
}
