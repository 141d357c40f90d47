/*
 * What the parts of cuda_floor share: the driver, the clock, rows of the table, and the other process.
 *
 * The driver is loaded by dlopen, by its public symbols, so that the program also measures what the library does not
 * call. A row whose functions the driver lacks says so by name.
 */
#ifndef COLL_BENCH_FLOOR_H
#define COLL_BENCH_FLOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "device/kernels.h"

/* Every function of the interface; NULL: the driver lacks it. */
struct floor_driver {
#define FLOOR_MEMBER(name, symbol, version, parameters) symbol##_fn name;
	CUDA_ABI_FUNCTIONS(FLOOR_MEMBER)
#undef FLOOR_MEMBER
};
extern struct floor_driver cu;

/* This process: its context, streams, kernels and words. */
struct floor_state {
	int iters;
	size_t max_bytes;
	CUdevice device;
	CUcontext context;
	CUstream a, b;
	CUfunction kernel[COLL_KERNEL_COUNT]; /* NULL: the build has no kernels */
	/* A page that both processes map. Word i lies at 64 * i. */
	char *page;
	CUdeviceptr page_address;
};
extern struct floor_state fs;
extern int floor_failures; /* rows that failed */

/* Loads the driver, makes the context and the streams, registers the page. False: said why on stderr. */
bool floor_open(int ordinal);

_Atomic uint32_t *floor_word(int i);
CUdeviceptr floor_word_address(int i);

double floor_now_us(void);
/* False, with a line on stderr that names what failed, if r is no success; the row then says so. */
bool floor_ok(CUresult r, const char *what);
#define OK(call) floor_ok((call), #call)

/* ---- Rows ---- */

void floor_head(const char *title);
/* p50, min and p99 of the samples, in us; bytes above 0: GB/s too. Sorts them. */
void floor_row(const char *what, size_t bytes, double *us, int n);
void floor_lacks(const char *what, const char *function);
void floor_failed(const char *what);
/* Whether a row can be made: `if (HAS("title", cuMemAlloc))`. */
#define HAS(what, name) (cu.name || (floor_lacks((what), #name), false))

/* ---- Both processes ---- */

enum floor_task { FLOOR_END, FLOOR_PING, FLOOR_TURNS, FLOOR_OPEN_LEGACY, FLOOR_IMPORT };

struct floor_order {
	enum floor_task task;
	int n;
	bool with_kernel;
	size_t bytes;
	CUipcMemHandle handle;
};
struct floor_answer {
	bool done;
	double us[3];
};

/* The other process, which opens the same device. fd: its socket. */
bool floor_other_start(int ordinal);
void floor_other_end(void);
/* Descriptor: one to send along, or -1. */
bool floor_tell(const struct floor_order *o, int descriptor);
bool floor_hear(struct floor_answer *a);

bool floor_launch_nothing(CUstream s);

void floor_pair_rows(void);   /* pair.c */
void floor_mapped_rows(void); /* mapped.c */

#endif
