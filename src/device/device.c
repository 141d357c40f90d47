/*
 * Devices of which nothing is opened yet: what a text asks for, and which of the devices found a rank gets.
 */
#include "device/device.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/number.h"
#include "device/cuda.h"
#include "device/cuda_load.h"
#include "device/kernels.h"

enum { LIST_MAX = sizeof(((struct coll_device_choice *)0)->list) / sizeof(int), ORDINAL_MAX = 1023 };

static coll_status malformed(const char *text, struct coll_error_box *err)
{
	return coll_error_set(err, COLL_ERR_CONFIG,
	                      "[COLL-1106] device %.80s: expected host, cuda, cuda:2, or for coll_comm_create_all() a "
	                      "list of up to %d such as cuda:0,1,2,3",
	                      text, (int)LIST_MAX);
}

coll_status coll_device_parse(const char *text, struct coll_device_choice *choice, struct coll_error_box *err)
{
	struct coll_device_choice c = {.wanted = true, .ordinal = -1};
	const char *p = text;

	if (strcmp(text, "host") == 0)
		c.wanted = false;
	else if (strncmp(text, "cuda", 4) != 0 || (text[4] && text[4] != ':'))
		return malformed(text, err);
	for (p += 4; c.wanted && *p; c.n++) {
		const size_t len = strcspn(++p, ",");
		char number[8] = "";

		if (len == 0 || len >= sizeof(number) || c.n == LIST_MAX || (p[len] && !p[len + 1]))
			return malformed(text, err);
		memcpy(number, p, len);
		if (!isdigit((unsigned char)number[0]) || !coll_number_parse(number, 0, ORDINAL_MAX, &c.list[c.n]))
			return malformed(text, err);
		p += len;
	}
	if (c.n == 1)
		c.ordinal = c.list[0];
	*choice = c;
	return COLL_OK;
}

static coll_status find(const struct coll_device_choice *choice, const char *library, const struct coll_cuda **cuda,
                        int *count, struct coll_error_box *err)
{
	coll_status st = COLL_OK;

	if (!coll_kernels_ptx())
		st = coll_error_set(
		        err, COLL_ERR_CONFIG,
		        "[COLL-1117] this build has no kernels for CUDA devices: it was made without clang and nvcc");
	if (st == COLL_OK)
		st = coll_cuda_load(library, cuda, err);
	if (st == COLL_OK)
		st = coll_cuda_count(*cuda, count, err);
	for (int i = 0; i < choice->n && st == COLL_OK; i++)
		if (choice->list[i] >= *count)
			st = coll_error_set(err, COLL_ERR_CONFIG,
			                    "[COLL-1116] there is no cuda:%d: the driver %s has %d device%s",
			                    choice->list[i], (*cuda)->file, *count, *count == 1 ? "" : "s");
	return st;
}

coll_status coll_device_probe(const struct coll_device_choice *choice, const char *library, struct coll_error_box *err)
{
	const struct coll_cuda *cuda;
	int count;

	return choice->wanted ? find(choice, library, &cuda, &count, err) : COLL_OK;
}

static int ordinal_of(const struct coll_device_choice *choice, int rank, int local_rank, int count)
{
	if (choice->n > 1)
		return choice->list[rank];
	return choice->ordinal < 0 ? local_rank % count : choice->ordinal;
}

void coll_device_locate(const struct coll_device_choice *choice, const char *library, int rank, int local_rank,
                        char pci[24])
{
	const struct coll_cuda *cuda;
	struct coll_error_box err;
	int count;

	pci[0] = '\0';
	if (!choice->wanted || (choice->n > 1 && rank >= choice->n) ||
	    (choice->n <= 1 && choice->ordinal < 0 && local_rank < 0) ||
	    find(choice, library, &cuda, &count, &err) != COLL_OK)
		return;
	coll_cuda_locate(cuda, ordinal_of(choice, rank, local_rank, count), pci);
}

coll_status coll_device_open(const struct coll_device_choice *choice, const char *library, int rank, int local_rank,
                             struct coll_device **device, struct coll_error_box *err)
{
	const struct coll_cuda *cuda = NULL;
	int count = 0;
	coll_status st;

	assert(choice->wanted);
	st = find(choice, library, &cuda, &count, err);
	if (st != COLL_OK)
		return st;
	if (choice->n > 1 && rank >= choice->n)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1116] the list of devices has %d entries, none for rank %d", choice->n,
		                      rank);
	return coll_cuda_open(cuda, ordinal_of(choice, rank, local_rank, count), device, err);
}

/* If its end would not wait. Else it stays for good. */
void coll_device_close(struct coll_device **device)
{
	if (*device && !coll_device_is_held(*device))
		coll_cuda_close(device);
	*device = NULL;
}

static struct hold {
	struct hold *next;
	int ordinal;
	const _Atomic uint32_t *word;
	uint32_t value;
} * holds;
static pthread_mutex_t holds_lock = PTHREAD_MUTEX_INITIALIZER;

void coll_device_hold(struct coll_device *d, const _Atomic uint32_t *word, uint32_t value)
{
	struct hold *h = malloc(sizeof(*h));

	if (!h)
		return;
	*h = (struct hold){.ordinal = d->ordinal, .word = word, .value = value};
	pthread_mutex_lock(&holds_lock);
	h->next = holds;
	holds = h;
	pthread_mutex_unlock(&holds_lock);
}

bool coll_device_is_held(const struct coll_device *d)
{
	bool held = false;

	pthread_mutex_lock(&holds_lock);
	for (struct hold **at = &holds; *at;) {
		struct hold *h = *at;

		if ((int32_t)(atomic_load_explicit(h->word, memory_order_acquire) - h->value) >= 0) {
			*at = h->next;
			free(h);
			continue;
		}
		held |= h->ordinal == d->ordinal;
		at = &h->next;
	}
	pthread_mutex_unlock(&holds_lock);
	return held;
}

coll_status coll_device_unpin(struct coll_device *d, void *host)
{
	return coll_device_is_held(d) ? COLL_AGAIN : d->table->unpin(d, host);
}

void coll_device_error(struct coll_device *d, struct coll_error_box *box)
{
	pthread_mutex_lock(&d->err_lock);
	*box = d->err;
	pthread_mutex_unlock(&d->err_lock);
}

void coll_device_describe(const char *library, struct coll_text *text)
{
	const struct coll_device_choice any = {.wanted = true, .ordinal = -1};
	const struct coll_cuda *cuda = NULL;
	struct coll_error_box err;
	char about[96];
	int count = 0;

	coll_error_clear(&err);
	if (find(&any, library, &cuda, &count, &err) != COLL_OK) {
		const struct coll_message_text m = coll_message_split(err.status, err.message);

		coll_text_add(text, "cuda devices: none: %s%s\n", m.text, m.tag);
		return;
	}
	coll_text_add(text, "cuda devices: %d, driver %s for CUDA %d.%d%s%s\n", count, cuda->file, cuda->version / 1000,
	              cuda->version % 1000 / 10, cuda->lacks[0] ? ", without " : "", cuda->lacks);
	for (int i = 0; i < count; i++)
		coll_text_add(text, "  cuda:%d %s\n", i, coll_cuda_about(cuda, i, about));
}

bool coll_device_can_reduce(coll_dtype type, coll_op op)
{
	return coll_kernels_find(type, op) >= 0;
}

const struct coll_memory *coll_device_memory(int kind)
{
	static const struct coll_memory plain[] = {
	        [COLL_DEVICE_HOST] = {.size = sizeof(struct coll_memory), .kind = COLL_DEVICE_HOST},
	        [COLL_DEVICE_CUDA] = {.size = sizeof(struct coll_memory), .kind = COLL_DEVICE_CUDA}};

	assert(kind == COLL_DEVICE_HOST || kind == COLL_DEVICE_CUDA);
	return &plain[kind];
}
