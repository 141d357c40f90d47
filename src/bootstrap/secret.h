/*
 * The launch secret: where it may come from, and whether a job needs one.
 */
#ifndef COLL_BOOTSTRAP_SECRET_H
#define COLL_BOOTSTRAP_SECRET_H

#include "bootstrap/bootstrap.h"

/* Sources of jobs that meet by a unique id, for coll_identity.secret: the caller or a launcher hands it on, or munge.
 */
extern const char coll_secret_unique_id[], coll_secret_munge[];

/* Whether strangers lack what the handshakes of this job prove. */
static inline bool coll_identity_has_secret(const struct coll_identity *id)
{
	return id->secret != NULL;
}

/* Keep COLL_JOB_KEY of the environment for all creations of this process, and overwrite it there. A malformed one is
 * left: coll_secret_find() refuses it, unless the caller has given another one. */
void coll_secret_take(void);

/* Settings are kept and shown as long as a communicator: from here on without COLL_JOB_KEY. */
void coll_secret_forget(struct coll_settings *settings);

/*
 * Ask the sources in their order, and fill job_key and secret of an identity that says where the ranks meet. words:
 * what is public about the job. They keep jobs apart that share a key file, or have no secret at all: then job_key is
 * made of them alone, and secret is NULL. A file or a descriptor that cannot be used is COLL_ERR_CONFIG and named.
 */
coll_status coll_secret_find(const struct coll_settings *settings, const char *words, struct coll_identity *id,
                             struct coll_error_box *err);

/* Refuse a job whose ranks meet beyond this host without a secret, unless insecure: then open is set. others: what else
 * the user may do, "" or text that ends in "or ". */
coll_status coll_secret_check(bool insecure, const char *others, struct coll_identity *id, struct coll_error_box *err);

/* Whether this rank is to warn that its job is open: rank 0, once in a process. */
bool coll_secret_warns(const struct coll_identity *id);

#endif
