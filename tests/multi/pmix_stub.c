/*
 * A libpmix whose job never gets whole, for pmix_interrupt.c: the fence does not end, and neither does what follows it.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct process {
	char space[256];
	uint32_t rank;
};

int PMIx_Init(struct process *self, void *info, size_t infos)
{
	memset(self, 0, sizeof(*self));
	return 0;
}

int PMIx_Finalize(const void *info, size_t infos)
{
	pause();
	return 0;
}

int PMIx_Put(uint8_t scope, const char *key, void *value)
{
	return 0;
}

int PMIx_Commit(void)
{
	return 0;
}

/* Of a fence that never passes: PMIx holds it to the end. */
static void *volatile waiting;

int PMIx_Fence_nb(const void *who, size_t n, const void *info, size_t infos, void (*done)(int status, void *arg),
                  void *arg)
{
	waiting = arg;
	return 0;
}

int PMIx_Get(const void *who, const char *key, const void *info, size_t infos, void **value)
{
	return -1;
}

const char *PMIx_Error_string(int status)
{
	return "an error of the stub";
}
