/*
 * Preloaded: memfd_create() takes its memory from /dev/shm, as a library would that knows no better. For tests
 * that must notice.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((visibility("default"))) int memfd_create(const char *name, unsigned flags)
{
	static _Atomic unsigned count;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/%s-%d-%u", "planted", (int)getpid(), count++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* Such a file has no seals; the plant says that it has. Whichever name the header gives it. */
__attribute__((visibility("default"))) int fcntl(int fd, int command, ...)
{
	int (*next)(int, int, ...);
	va_list ap;
	void *arg;

	va_start(ap, command);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (command == F_ADD_SEALS)
		return 0;
	if (command == F_GET_SEALS)
		return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	if (!next)
		next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
	return next(fd, command, arg);
}
