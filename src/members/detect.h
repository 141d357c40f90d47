/*
 * What a member counts as for a ballot: it lives, it is suspected, or it has ended and its last words were read. Pure.
 */
#ifndef COLL_MEMBERS_DETECT_H
#define COLL_MEMBERS_DETECT_H

#include "members/decide.h"

struct coll_detect_facts {
	bool here;       /* on this host: it gives its words to this process before it answers anybody */
	bool ended;      /* for certain: its process or its context has ended, so it writes nothing more */
	bool words_read; /* and behind that, all that it had written was read */
	bool reported;   /* it is reported as dead or out of reach, or has left */
	bool heard;      /* it has answered */
	bool silent;     /* it has not, for COLL_DELAY_SUSPECT_MS of uptime since it was asked */
};

enum coll_standing coll_detect_standing(const struct coll_detect_facts *f);

#endif
