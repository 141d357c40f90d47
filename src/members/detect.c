/*
 * See detect.h. A suspicion may be wrong, and costs progress only; that a member has ended must be certain, since it is
 * not counted any more.
 */
#include "members/detect.h"

#include "base/planted.h"

enum coll_standing coll_detect_standing(const struct coll_detect_facts *f)
{
	const bool here = f->here || planted(DETECT_OTHER_HOST), read = f->words_read || planted(DETECT_EARLY);

	if ((here && read && f->ended) || (planted(DETECT_REPORTED) && f->reported))
		return COLL_STANDING_ENDED;
	if (f->ended || f->reported || (f->silent && !f->heard))
		return COLL_STANDING_SUSPECTED;
	return COLL_STANDING_LIVES;
}
