/*
 * Failed system calls in words: see errno_text.h. Owns what each thread keeps, which is no more than a number and the
 * address of a constant.
 */
#include "base/errno_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/thread.h"

static _Thread_local struct {
	const char *call;
	int error;  /* 0: none */
	bool locks; /* the call locks memory */
} kept;

/* A limit of this process, if it has one. */
static bool say_limit(struct coll_errno_text *t, int which, const char *name, unsigned unit, const char *command)
{
	const size_t used = strlen(t->text);
	struct rlimit most;

	if (getrlimit((__typeof__(RLIMIT_AS))which, &most) != 0 || most.rlim_cur == RLIM_INFINITY)
		return false;
	snprintf(t->text + used, sizeof(t->text) - used, " (%s is %llu%s; ulimit %s N raises it)", name,
	         (unsigned long long)most.rlim_cur / unit, unit > 1 ? " KiB" : "", command);
	return true;
}

static void say(struct coll_errno_text *t, const char *what)
{
	const size_t used = strlen(t->text);

	snprintf(t->text + used, sizeof(t->text) - used, " (%s)", what);
}

struct coll_errno_text coll_errno_text(int error)
{
	const int saved = errno;
	struct coll_errno_text t;

	snprintf(t.text, sizeof(t.text), "%s", strerror(error));
	switch (error) {
	case EMFILE: say_limit(&t, RLIMIT_NOFILE, "RLIMIT_NOFILE", 1, "-n"); break;
	case ENFILE: say(&t, "sysctl fs.file-max=N raises it"); break;
	case EFBIG: say_limit(&t, RLIMIT_FSIZE, "RLIMIT_FSIZE", 1024, "-f"); break;
	case ENOMEM:
		if (!say_limit(&t, RLIMIT_AS, "RLIMIT_AS", 1024, "-v") &&
		    !say_limit(&t, RLIMIT_DATA, "RLIMIT_DATA", 1024, "-d"))
			say(&t, "memory of the host or limit of its container");
		break;
	case EPERM:
	case EACCES: say(&t, "a security policy, a filter of system calls or a firewall refuses it"); break;
	case ENOSPC: say(&t, "a file system or a quota of the kernel is full"); break;
	default: break;
	}
	errno = saved;
	return t;
}

struct coll_errno_text coll_errno_lock(int error)
{
	struct coll_errno_text t;

	snprintf(t.text, sizeof(t.text), "%s", strerror(error));
	if ((error == ENOMEM || error == EPERM || error == EAGAIN) &&
	    say_limit(&t, RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", 1024, "-l"))
		return t;
	return coll_errno_text(error);
}

/* The C library says EAGAIN for a stack that cannot be mapped, too. */
static bool lacks_stack(void)
{
	void *stack = mmap(NULL, COLL_THREAD_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED)
		return true;
	munmap(stack, COLL_THREAD_STACK_BYTES);
	return false;
}

struct coll_errno_text coll_errno_thread(int error)
{
	struct coll_errno_text t;

	bool said;

	if (error == EAGAIN && lacks_stack())
		return coll_errno_text(ENOMEM);
	t = coll_errno_text(error);
	if (error != EAGAIN)
		return t;
	/* The stack is not all that it needs, and there may be more memory again: both limits then. */
	said = say_limit(&t, RLIMIT_AS, "memory: RLIMIT_AS", 1024, "-v");
	said |= say_limit(&t, RLIMIT_NPROC, said ? "or RLIMIT_NPROC" : "RLIMIT_NPROC", 1, "-u");
	if (!said)
		say(&t, "limit of processes (pids) of the container");
	return t;
}

bool coll_errno_is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == ENOSPC ||
	       error == EFBIG;
}

bool coll_errno_unreachable(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
	       error == ENETDOWN;
}

void coll_errno_keep(const char *call)
{
	kept.call = call;
	kept.error = errno;
	kept.locks = false;
}

void coll_errno_keep_lock(const char *call)
{
	coll_errno_keep(call);
	kept.locks = true;
}

void coll_errno_clear(void)
{
	kept.error = 0;
}

bool coll_errno_kept_shortage(void)
{
	return coll_errno_is_shortage(kept.error);
}

coll_status coll_errno_status(coll_status otherwise)
{
	return kept.error == 0 ? otherwise : kept.error == ENOMEM ? COLL_ERR_MEMORY : COLL_ERR_SYSTEM;
}

struct coll_errno_text coll_errno_take(const char *otherwise)
{
	struct coll_errno_text t, why;

	if (kept.error == 0) {
		snprintf(t.text, sizeof(t.text), "%s", otherwise);
		return t;
	}
	why = kept.locks ? coll_errno_lock(kept.error) : coll_errno_text(kept.error);
	kept.error = 0;
	snprintf(t.text, sizeof(t.text), "%.*s: %.130s", (int)strcspn(kept.call, "("), kept.call, why.text);
	return t;
}
