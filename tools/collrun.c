/*
 * collrun: start the ranks of a job here or on other hosts, show their output,
 * and end all of them when one fails. Linux; needs nothing but ssh for other
 * hosts. See docs/design/bootstrap.md.
 */
#include <string.h>

#include "collrun.h"
#include "tools/common/last_flush.h"

int main(int argc, char **argv)
{
	struct options o;
	int status;

	streams_hold();
	if (argc == 2 && strcmp(argv[1], "--agent") == 0)
		agent_run(0, 1);
	last_flush_check("collrun");
	status = options_parse(&o, argc, argv);
	if (status < 0)
		status = front_run(&o);
	options_free(&o);
	return status;
}
