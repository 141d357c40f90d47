/*
 * MUNGE: credentials that one user of a cluster makes and opens on any of its hosts, through libmunge found at run
 * time.
 */
#ifndef COLL_BOOTSTRAP_MUNGE_H
#define COLL_BOOTSTRAP_MUNGE_H

#include <stdbool.h>
#include <stddef.h>

enum { COLL_CREDENTIAL_BYTES = 2048 };

/* Whether libmunge is here and the socket of its daemon. False: why says what is missing. */
bool coll_munge_there(char *why, size_t why_bytes);

/* A credential with that text, which only this user can open. False: why says what the daemon said. */
bool coll_munge_seal(const char *text, char credential[COLL_CREDENTIAL_BYTES], char *why, size_t why_bytes);

/* The text of a credential that this user has made. */
bool coll_munge_open(const char *credential, char *text, size_t text_bytes, char *why, size_t why_bytes);

#endif
