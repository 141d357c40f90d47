/*
 * A planted defect: leaks one block. `./run check` must turn red on it, or its
 * leak detection does not work.
 */
#include <stdlib.h>

int main(void)
{
	char *volatile p = malloc(100);

	p[0] = 1;
	p = NULL;
	return p != NULL;
}
