/*
 * Loading of libcuda.so.1: one table for the process, published when it is complete. A file that
 * was loaded stays mapped even if it cannot be used, since a driver may have threads.
 */
#include "device/cuda_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
	const char *name, *symbol, *ability; /* ability NULL: the driver is refused without the function */
	int version;
	size_t offset;
};

/* What cuda_abi.h says of each function, under its name. */
#define FACTS(name, symbol, version, parameters) \
	enum { name##_version = (version) };     \
	static const char name##_symbol[] __attribute__((unused)) = #symbol;
CUDA_ABI_FUNCTIONS(FACTS)

static const struct row rows[] = {
#define NEED(name)         {#name, name##_symbol, NULL, name##_version, offsetof(struct coll_cuda, name)},
#define MAY(name, ability) {#name, name##_symbol, ability, name##_version, offsetof(struct coll_cuda, name)},
        COLL_CUDA_FUNCTIONS(NEED, MAY)
#undef NEED
#undef MAY
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct coll_cuda loaded; /* lock, until it is complete */
static bool complete;           /* lock */

const char *coll_cuda_error_text(const struct coll_cuda *cuda, CUresult result, char text[160])
{
	const char *name = NULL, *meaning = NULL;

	if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	if (cuda->cuGetErrorString(result, &meaning) != CUDA_SUCCESS || !meaning)
		meaning = "no text";
	snprintf(text, 160, "%d %s (%s)", (int)result, name, meaning);
	return text;
}

/* By cuGetProcAddress where the driver has it in the form of CUDA 12, else by the symbol of that variant. */
static void *resolve(void *file, cuGetProcAddress_type get, const struct row *row)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	void *fn = NULL;

	if (!get)
		return dlsym(file, row->symbol);
	if (get(row->name, &fn, row->version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS ||
	    found != CU_GET_PROC_ADDRESS_SUCCESS)
		return NULL;
	return fn;
}

static void add_lack(char *list, size_t room, const char *ability)
{
	const size_t used = strlen(list);

	if (!strstr(list, ability))
		snprintf(list + used, room - used, "%s%s", used ? " " : "", ability);
}

/* The version comes first: what an old driver lacks besides says less. */
static coll_status check_version(struct coll_cuda *c, void *file, struct coll_error_box *err)
{
	cuDriverGetVersion_type get = NULL;

	*(void **)(void *)&get = dlsym(file, "cuDriverGetVersion");
	if (!get)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1115] %s is not a CUDA driver: it has no %s",
		                      c->file, "cuDriverGetVersion");
	if (get(&c->version) != CUDA_SUCCESS)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1115] %s does not tell its version", c->file);
	if (c->version < COLL_CUDA_VERSION_MIN)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1115] the driver %s is for CUDA %d.%d: %d.%d or later is needed", c->file,
		                      c->version / 1000, c->version % 1000 / 10, COLL_CUDA_VERSION_MIN / 1000,
		                      COLL_CUDA_VERSION_MIN % 1000 / 10);
	return COLL_OK;
}

static coll_status resolve_all(struct coll_cuda *c, void *file, struct coll_error_box *err)
{
	cuGetProcAddress_type get = NULL;

	*(void **)(void *)&get = dlsym(file, cuGetProcAddress_symbol);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *fn = resolve(file, get, &rows[i]);

		if (fn)
			memcpy((char *)c + rows[i].offset, &fn, sizeof(fn));
		else if (rows[i].ability)
			add_lack(c->lacks, sizeof(c->lacks), rows[i].ability);
		else
			return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1115] the driver %s (CUDA %d.%d) has no %s",
			                      c->file, c->version / 1000, c->version % 1000 / 10, rows[i].name);
	}
	return COLL_OK;
}

static coll_status initialise(struct coll_cuda *c, struct coll_error_box *err)
{
	const CUresult result = c->cuInit(0);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char text[160];

	if (result == CUDA_SUCCESS)
		return COLL_OK;
	coll_cuda_error_text(c, result, text);
	if (result == CUDA_ERROR_NO_DEVICE)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1116] the driver %s has no device%s%.80s: %s",
		                      c->file, visible ? " with CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "",
		                      text);
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1114] the driver %s cannot be initialised: %s", c->file,
	                      text);
}

static coll_status load(const char *library, struct coll_error_box *err)
{
	struct coll_cuda c = {.version = 0};
	void *file;
	coll_status st;

	snprintf(c.file, sizeof(c.file), "%s", *library ? library : "libcuda.so.1");
	file = dlopen(c.file, RTLD_NOW | RTLD_LOCAL);
	if (!file)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1114] cannot load the CUDA driver: %s", dlerror());
	st = check_version(&c, file, err);
	if (st == COLL_OK)
		st = resolve_all(&c, file, err);
	if (st == COLL_OK)
		st = initialise(&c, err);
	if (st == COLL_OK) {
		loaded = c;
		complete = true;
	}
	return st;
}

coll_status coll_cuda_load(const char *library, const struct coll_cuda **cuda, struct coll_error_box *err)
{
	coll_status st = COLL_OK;

	pthread_mutex_lock(&lock);
	if (!complete)
		st = load(library, err);
	else if (*library && strcmp(library, loaded.file) != 0)
		st = coll_error_set(err, COLL_ERR_CONFIG,
		                    "[COLL-1114] COLL_CUDA_LIBRARY=%s: this process uses the driver %s already",
		                    library, loaded.file);
	pthread_mutex_unlock(&lock);
	if (st == COLL_OK)
		*cuda = &loaded;
	return st;
}
