/*
 * shm: reading a peer's memory with process_vm_readv (cross-memory attach).
 *
 * A trial when the link is made shows whether it is allowed. A process
 * number can be used again after its owner died. So the bytes read count only if the same call has found the
 * peer's random word at the place that the peer announced: one call reads one address space. That also proves that the
 * process has not become another program meanwhile.
 */
#include "transports/shm/cma.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fork.h"
#include "transports/shm/shm.h"

bool coll_shm_probe(uint32_t pid, uint64_t address, uint64_t value)
{
	uint64_t seen = 0;
	struct iovec here = {&seen, sizeof(seen)};
	struct iovec there = {(void *)(uintptr_t)address, sizeof(seen)};

	return pid && process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof(seen) && seen == value;
}

/* Asked after something has failed. A process that has ended, and was not waited for, counts as ended. */
bool coll_shm_alive(const struct shm_link *l)
{
	struct pollfd p = {-1, POLLIN, 0};
	bool alive;

	if (atomic_load(&l->status) != COLL_OK)
		return false;
	p.fd = COLL_FD((int)syscall(__NR_pidfd_open, (pid_t)l->peer_pid, 0));
	if (p.fd < 0)
		return errno != ESRCH;
	alive = poll(&p, 1, 0) == 0;
	coll_fd_close(p.fd);
	return alive;
}

/* The peer's word, and bytes behind it: how many of those have come, or -1 and errno, ESTALE if it is not the peer. */
static ssize_t read_known(const struct shm_link *l, uint64_t address, void *to, size_t len_bytes)
{
	uint64_t seen = 0;
	struct iovec here[2] = {{&seen, sizeof(seen)}, {to, len_bytes}};
	struct iovec there[2] = {{(void *)(uintptr_t)l->probe_address, sizeof(seen)},
	                         {(void *)(uintptr_t)address, len_bytes}};
	const ssize_t n = process_vm_readv((pid_t)l->peer_pid, here, 2, there, 2, 0);

	if (n >= (ssize_t)sizeof(seen) && seen == l->probe_value)
		return n - (ssize_t)sizeof(seen);
	/* Its address space is gone, or there is another one. */
	if (n >= 0 || errno == EFAULT)
		errno = ESTALE;
	return -1;
}

bool coll_shm_cma(const struct shm_link *l, uint32_t pid, uint64_t address, void *to, size_t len_bytes)
{
	char *at = to;

	/* An acquire: peer_pid and reported_pid were written before. The record's process must
	 * be the link's: a peer cannot make us read a third. */
	if (atomic_load(&l->status) != COLL_OK || pid != l->reported_pid || !l->peer_pid)
		return false;
	while (len_bytes) {
		const ssize_t n = read_known(l, address, at, len_bytes < SHM_PULL_UNIT ? len_bytes : SHM_PULL_UNIT);

		if (n <= 0)
			return false;
		at += n;
		address += (uint64_t)n;
		len_bytes -= (size_t)n;
	}
	return true;
}

coll_status coll_shm_cma_from(void *link, uint64_t address, void *to, size_t len_bytes)
{
	const struct shm_link *l = link;
	/* An acquire: what join() wrote before. */
	const coll_status status = coll_shm_link_state(l);
	char *at = to;

	if (status != COLL_OK)
		return status;
	if (!atomic_load(&l->we_pull))
		return COLL_ERR_UNSUPPORTED;
	while (len_bytes) {
		const size_t part = len_bytes < SHM_PULL_UNIT ? len_bytes : SHM_PULL_UNIT;
		const ssize_t n = read_known(l, address, at, part);

		/* One whose first thread has ended cannot be read, though it lives. */
		if (n != (ssize_t)part)
			return n < 0 && (errno == ESTALE || !coll_shm_alive(l)) ? COLL_ERR_PEER_DEAD
			                                                        : COLL_ERR_UNSUPPORTED;
		at += part;
		address += part;
		len_bytes -= part;
	}
	return COLL_OK;
}
