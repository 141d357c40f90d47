/*
 * See number.h.
 */
#include "base/number.h"

#include <errno.h>
#include <stdlib.h>

bool coll_number_parse(const char *text, int least, int most, int *value)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (end == text || *end || errno || v < least || v > most)
		return false;
	*value = (int)v;
	return true;
}
