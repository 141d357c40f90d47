/*
 * The main program of test programs that are one executable: each file has a PROGRAM() (tests/plain.h), and the first
 * argument names the one that runs. If there is but one it needs no name. Runs nothing by itself.
 *
 * usage: driver PROGRAM ARGUMENTS...
 */
#define PLAIN_OWN_MAIN
#include "plain.h"

int main(int argc, char **argv)
{
	if (plain_programs && !plain_programs->next)
		return plain_main(plain_programs, argc, argv);
	for (struct plain_program *p = plain_programs; p; p = p->next)
		if (argc > 1 && strcmp(p->suite, argv[1]) == 0)
			return plain_main(p, argc - 1, argv + 1);
	for (struct plain_program *p = plain_programs; p; p = p->next)
		fprintf(stderr, "%s %s %s\n", p == plain_programs ? "usage:" : "      ", p->suite, p->usage);
	return 64;
}
