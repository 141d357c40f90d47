/*
 * See fabric_test.h: the lock, the objects that are counted, and the table of calls that stands where verbs.c's
 * would. Invariant: what is destroyed is freed at once, so that the address sanitizer sees whoever uses it
 * afterwards; what the standard forbids (a work request without a receive at the peer, memory that is not
 * registered, too many completions) ends the program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/rdma/fabric_parts_test.h"

pthread_mutex_t fabric_mutex;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int objects;

static void begin(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&fabric_mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void (*between)(void);
static _Thread_local int inside;

void fabric_between(void (*fn)(void))
{
	between = fn;
}

int fabric_enter(void)
{
	pthread_once(&once, begin);
	if (between && inside == 0)
		between();
	inside++;
	return pthread_mutex_lock(&fabric_mutex);
}

void fabric_leave(const int *unused)
{
	pthread_mutex_unlock(&fabric_mutex);
	inside--;
}

_Noreturn void fabric_forbidden(const char *what)
{
	fprintf(stderr, "fabric: %s\n", what);
	abort();
}

void *fabric_make(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		fabric_forbidden("no memory");
	objects++;
	return p;
}

void fabric_unmake(void *p)
{
	objects--;
	free(p);
}

void fabric_show(int fd, bool readable)
{
	uint64_t n = 1;

	if ((readable ? write(fd, &n, sizeof(n)) : read(fd, &n, sizeof(n))) < 0 && errno != EAGAIN)
		fabric_forbidden(strerror(errno));
}

int fabric_objects(void)
{
	LOCKED;
	return objects;
}

coll_status coll_rdma_verbs_load(struct coll_rdma_verbs *v, char *why, size_t why_bytes)
{
	*v = (struct coll_rdma_verbs){0};
	fabric_verbs_fill(v);
	fabric_cm_fill(v);
	return COLL_OK;
}

void coll_rdma_verbs_opened(struct ibv_context *opened)
{
}

void coll_rdma_verbs_unload(struct coll_rdma_verbs *v)
{
}

/* This machine has an address for each device. */
static struct sockaddr_in address[FABRIC_DEVICES], mask = {.sin_family = AF_INET};
static char interface[FABRIC_DEVICES][16];
static struct ifaddrs addresses[FABRIC_DEVICES];
static int devices;

void fabric_devices(int count)
{
	devices = count;
}

int getifaddrs(struct ifaddrs **all)
{
	LOCKED;
	const char *set = getenv("FABRIC_DEVICES");

	if (devices == 0)
		devices = set ? atoi(set) : 1;
	if (devices < 1 || devices > FABRIC_DEVICES)
		fabric_forbidden("so many devices");
	mask.sin_addr.s_addr = htonl(0xffffff00);
	for (int i = 0; i < devices; i++) {
		address[i] = (struct sockaddr_in){.sin_family = AF_INET};
		address[i].sin_addr.s_addr = htonl(0x0a630001 + ((uint32_t)i << 8));
		snprintf(interface[i], sizeof(interface[i]), "fabric%d", i);
		addresses[i] = (struct ifaddrs){.ifa_next = i + 1 < devices ? &addresses[i + 1] : NULL,
		                                .ifa_name = interface[i],
		                                .ifa_flags = IFF_UP,
		                                .ifa_addr = (struct sockaddr *)&address[i],
		                                .ifa_netmask = (struct sockaddr *)&mask};
	}
	*all = &addresses[0];
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
}
