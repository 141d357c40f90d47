/*
 * Whether a user that the kernel names, as the owner of a file or the other end of a Unix socket, is that of this
 * process.
 */
#ifndef COLL_BASE_OWN_USER_H
#define COLL_BASE_OWN_USER_H

#include <sys/types.h>

/* UNKNOWN: one that this user namespace has no number for. All of these have one number in common, and this process may
 * be such a user itself. */
enum coll_user { COLL_USER_OWN, COLL_USER_OTHER, COLL_USER_UNKNOWN };

enum coll_user coll_user_of(uid_t uid);

#endif
