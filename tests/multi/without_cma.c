/*
 * Runs a program that the kernel refuses to read or write other processes' memory, as containers
 * do: without_cma PROGRAM [ARGUMENT ...]. Exit status 77: it cannot be forbidden here.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

int main(int argc, char **argv)
{
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
	char from = 1, to = 0;
	struct iovec here = {&to, 1}, there = {&from, 1};

	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		fprintf(stderr, "without_cma: %s\n", argc < 2 ? "no program" : "no seccomp filter");
		return 77;
	}
	if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != -1 || errno != EPERM) {
		fprintf(stderr, "without_cma: still allowed\n");
		return 1;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
