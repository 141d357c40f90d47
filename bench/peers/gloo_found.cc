/*
 * Gloo's header and library are there if this is built: meson.build.
 */
#include <gloo/allreduce.h>

int main()
{
	return 0;
}
