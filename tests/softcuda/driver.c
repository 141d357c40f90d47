/*
 * The driver as a whole: settings, the way into every entry point, counters, the search for
 * functions, names of errors, and devices. A setting is read once, at the first call.
 */
#include "tests/softcuda/soft.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct soft_driver soft = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
__thread bool soft_in_callback __attribute__((tls_model("initial-exec")));

struct function {
	const char *name;
	int version;
	void *address;
};

#define FUNCTION(name, symbol, version, parameters) {#name, version, (void *)symbol},
static const struct function functions[] = {CUDA_ABI_FUNCTIONS(FUNCTION)};
static _Atomic long counts[FN_COUNT], host_bytes;

#define RULE(name, text) #name,
static const char *const rules[] = {SOFT_RULES(RULE) NULL};
static bool planted[RULE_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

long soft_setting(const char *name, long otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtol(value, NULL, 0) : otherwise;
}

static void forked_child(void)
{
	if (soft.initialised && !soft_planted(RULE_no_fork))
		soft.forked = true;
}

static void read_settings(void)
{
	const char *plant = getenv("SOFTCUDA_PLANT");

	if (plant && *plant) {
		int known = 0;

		for (int i = 0; i < RULE_COUNT; i++)
			known += planted[i] = strcmp(plant, rules[i]) == 0;
		if (!known) {
			fprintf(stderr, "softcuda: SOFTCUDA_PLANT=%s is not a rule\n", plant);
			abort();
		}
	}
	soft.version = (int)soft_setting("SOFTCUDA_DRIVER_VERSION", 13000);
	soft.queues = (int)soft_setting("SOFTCUDA_QUEUES", soft_setting("CUDA_DEVICE_MAX_CONNECTIONS", 8));
	if (soft.queues < 1 || soft.queues > SOFT_QUEUES_MAX) {
		fprintf(stderr, "softcuda: SOFTCUDA_QUEUES is 1 to %d\n", SOFT_QUEUES_MAX);
		abort();
	}
	soft.depth = (int)soft_setting("SOFTCUDA_DEPTH", 1024);
	soft.seed = (uint64_t)soft_setting("SOFTCUDA_SEED", 0);
	soft.no_memops = soft_setting("SOFTCUDA_NO_MEMOPS", 0);
	soft.launch_blocking = soft_setting("CUDA_LAUNCH_BLOCKING", 0) == 1;
	soft.eager = getenv("CUDA_MODULE_LOADING") && strcmp(getenv("CUDA_MODULE_LOADING"), "EAGER") == 0;
	pthread_atfork(NULL, NULL, forked_child);
}

bool soft_planted(enum soft_rule rule)
{
	return planted[rule];
}

/* ---- the way in ---- */

CUresult soft_enter_free(enum soft_fn fn)
{
	pthread_once(&once, read_settings);
	if (!soft_planted(RULE_counts) || !counts[fn])
		atomic_fetch_add_explicit(&counts[fn], 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

CUresult soft_enter_thread(enum soft_fn fn)
{
	soft_enter_free(fn);
	if (soft.forked || !soft.initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (soft_in_callback && !soft_planted(RULE_callback_calls))
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult soft_enter(enum soft_fn fn)
{
	uint64_t since = 0;
	CUresult result = soft_enter_thread(fn);

	if (result)
		return result;
	while (soft.exclusive && !pthread_equal(soft.exclusive_by, pthread_self()))
		soft_wait_changed(functions[fn].name, &since);
	return CUDA_SUCCESS;
}

/* What softcuda_refuse() asked for. */
static _Atomic int refused_fn = -1, refused_after, refused_error;

void softcuda_refuse(const char *name, int after, int error)
{
	refused_fn = -1;
	refused_after = after;
	refused_error = error;
	for (int i = 0; i < FN_COUNT; i++)
		if (strcmp(name, functions[i].name) == 0)
			refused_fn = i;
}

static CUresult refused(enum soft_fn fn)
{
	if (refused_fn != (int)fn || atomic_fetch_sub(&refused_after, 1) != 0)
		return CUDA_SUCCESS;
	refused_fn = -1;
	return (CUresult)refused_error;
}

CUresult soft_enter_ctx(enum soft_fn fn, CUcontext *ctx)
{
	CUresult result = soft_enter(fn);

	if (result)
		return result;
	*ctx = soft_current();
	if (!*ctx && soft_planted(RULE_no_context))
		*ctx = soft.contexts;
	if (!*ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if ((*ctx)->dead)
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else if (!soft_planted(RULE_sticky))
		result = (*ctx)->error;
	if (result == CUDA_SUCCESS)
		result = refused(fn);
	return result ? soft_leave(result) : CUDA_SUCCESS;
}

CUresult soft_leave(CUresult result)
{
	pthread_mutex_unlock(&soft.lock);
	return result;
}

/* ---- counters ---- */

long softcuda_count(const char *name)
{
	long sum = 0;

	for (int i = 0; i < FN_COUNT; i++) {
		if (name && strcmp(name, functions[i].name) == 0)
			return counts[i];
		sum += counts[i];
	}
	return name ? -1 : sum;
}

void soft_count_host(size_t bytes)
{
	atomic_fetch_add_explicit(&host_bytes, (long)bytes, memory_order_relaxed);
}

long softcuda_host_bytes(void)
{
	return host_bytes;
}

void softcuda_reset(void)
{
	host_bytes = 0;
	for (int i = 0; i < FN_COUNT; i++)
		counts[i] = 0;
}

int softcuda_blocked(void)
{
	return soft.blocked;
}

const char *const *softcuda_rules(void)
{
	return rules;
}

/* SOFTCUDA_COUNTS=file: a line "pid name count" for each entry point that was called. */
__attribute__((destructor)) static void write_counts(void)
{
	const char *path = getenv("SOFTCUDA_COUNTS");
	char text[16384];
	size_t len = 0;
	FILE *file;

	if (!path || !*path || soft.forked)
		return;
	for (int i = 0; i < FN_COUNT; i++)
		if (counts[i])
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%d %s %ld\n", (int)getpid(),
			                        functions[i].name, counts[i]);
	len += (size_t)snprintf(text + len, sizeof(text) - len, "%d host_bytes %ld\n", (int)getpid(), host_bytes);
	file = fopen(path, "a");
	if (!file)
		return;
	setvbuf(file, NULL, _IOFBF, sizeof(text)); /* one write: processes share the file */
	fwrite(text, 1, len, file);
	fclose(file);
}

/* ---- functions ---- */

CUresult cuDriverGetVersion(int *version)
{
	soft_enter_free(FN_cuDriverGetVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = soft.version;
	return CUDA_SUCCESS;
}

static bool listed(const char *list, const char *name)
{
	const size_t len = strlen(name);

	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (strncmp(p, name, len) == 0 && (p[len] == ',' || !p[len]))
			return true;
	return false;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

	soft_enter_free(FN_cuGetProcAddress);
	if (!symbol || !pfn || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	for (int i = 0; i < FN_COUNT; i++) {
		const struct function *f = &functions[i];

		if (strcmp(symbol, f->name) != 0)
			continue;
		if (listed(getenv("SOFTCUDA_MISSING"), symbol) && !soft_planted(RULE_missing))
			break;
		if ((f->version > soft.version || f->version > version) && !soft_planted(RULE_driver_version)) {
			why = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			break;
		}
		*pfn = f->address;
		why = CU_GET_PROC_ADDRESS_SUCCESS;
		break;
	}
	if (status)
		*status = why;
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- errors ---- */

static const struct {
	CUresult code;
	const char *text;
} texts[] = {
        {CUDA_SUCCESS, "no error"},
        {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
        {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
        {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
        {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
        {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
        {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
        {CUDA_ERROR_NOT_READY, "device not ready"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
        {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
        {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
};

#define NAME(name, value) \
	case name: text = #name; break;

CUresult cuGetErrorName(CUresult error, const char **out)
{
	const char *text = NULL;

	soft_enter_free(FN_cuGetErrorName);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	switch (error) { /* clang-format off */ CUDA_ABI_RESULTS(NAME) default: break; /* clang-format on */
	}
	*out = text;
	return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	const char *text = NULL;

	soft_enter_free(FN_cuGetErrorString);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	switch (error) { /* clang-format off */ CUDA_ABI_RESULTS(NAME) default: break; /* clang-format on */
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].code == error)
			text = texts[i].text;
	*out = text;
	return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---- */

static void device_uuid(int physical, char *bytes)
{
	char text[17];

	snprintf(text, sizeof(text), "softcuda device%c", 'A' + physical);
	memcpy(bytes, text, 16);
}

/* An entry of CUDA_VISIBLE_DEVICES: a number, or "GPU-" and the start of a uuid in hex. -1: neither, or no such
 * device. */
static int visible_entry(const char *text, size_t len, int count)
{
	char *end;
	const long number = strtol(text, &end, 10);

	if (len && end == text + len)
		return number >= 0 && number < count ? (int)number : -1;
	for (int i = 0; i < count && len > 4 && strncmp(text, "GPU-", 4) == 0; i++) {
		char bytes[16], hex[40];
		int n = 0;

		device_uuid(i, bytes);
		for (int j = 0; j < 16; j++)
			n += snprintf(hex + n, sizeof(hex) - (size_t)n, "%s%02x",
			              j == 4 || j == 6 || j == 8 || j == 10 ? "-" : "", (unsigned char)bytes[j]);
		if (strncmp(text + 4, hex, len - 4) == 0)
			return i;
	}
	return -1;
}

CUresult cuInit(unsigned flags)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int count;

	soft_enter_free(FN_cuInit);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (soft.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&soft.lock);
	if (soft.initialised)
		return soft_leave(CUDA_SUCCESS);
	count = (int)soft_setting("SOFTCUDA_DEVICES", 1);
	if (count > SOFT_DEVICES_MAX)
		count = SOFT_DEVICES_MAX;
	soft.devices = 0;
	if (visible && !soft_planted(RULE_visible_devices)) {
		for (const char *p = visible; *p && soft.devices < SOFT_DEVICES_MAX;) {
			const size_t len = strcspn(p, ",");
			const int physical = visible_entry(p, len, count);

			if (physical < 0)
				break;
			soft.device[soft.devices++].physical = physical;
			p += len + (p[len] == ',');
		}
	} else {
		for (int i = 0; i < count; i++)
			soft.device[soft.devices++].physical = i;
	}
	if (soft.devices <= 0)
		return soft_leave(CUDA_ERROR_NO_DEVICE);
	for (int i = 0; i < soft.devices; i++)
		soft.device[i].total = (size_t)soft_setting("SOFTCUDA_MEMORY_MIB", 8192) << 20;
	soft_memory_init();
	soft.initialised = true;
	return soft_leave(CUDA_SUCCESS);
}

static bool is_device(CUdevice dev)
{
	return dev >= 0 && dev < soft.devices;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	if (!count)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*count = soft.devices;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(cuDeviceGet);
	if (!device)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(ordinal))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	ENTER(cuDeviceGetName);
	if (!is_device(dev))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!name || len <= 0)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(name, (size_t)len, "softcuda device %d (no GPU)", soft.device[dev].physical);
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	ENTER(cuDeviceGetUuid);
	if (!is_device(dev))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!uuid)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	device_uuid(soft.device[dev].physical, uuid->bytes);
	return soft_leave(CUDA_SUCCESS);
}

/* SOFTCUDA_PCI: "0000:34:00.0,0000:35:00.0", by physical number; beyond it, bus 0xa0 + the number. */
static void pci_of(CUdevice dev, unsigned at[3])
{
	const char *text = getenv("SOFTCUDA_PCI");

	for (int i = 0; text && i < soft.device[dev].physical; i++)
		text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL;
	at[0] = at[2] = 0;
	if (!text || sscanf(text, "%8x:%2x:%2x.0", &at[0], &at[1], &at[2]) != 3) {
		at[0] = at[2] = 0;
		at[1] = (unsigned)(0xa0 + soft.device[dev].physical) & 0xff;
	}
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	unsigned at[3];

	ENTER(cuDeviceGetPCIBusId);
	if (!is_device(dev))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!id || len < 13)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	pci_of(dev, at);
	snprintf(id, (size_t)len, "%04X:%02X:%02X.0", at[0], at[1], at[2]);
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	ENTER(cuDeviceTotalMem);
	if (!is_device(dev))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!bytes)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*bytes = soft.device[dev].total;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	ENTER(cuDeviceCanAccessPeer);
	if (!is_device(dev) || !is_device(peer))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!can)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*can = dev != peer && !soft_setting("SOFTCUDA_NO_PEER", 0);
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attribute, CUdevice dev)
{
	unsigned at[3];
	int value;

	ENTER(cuDeviceGetAttribute);
	if (!is_device(dev))
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!pi)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	pci_of(dev, at);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: value = 1024; break;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: value = 0x7fffffff; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: value = 48 << 10; break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: value = 32; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: value = (int)soft_setting("SOFTCUDA_SMS", 4); break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: value = 2048; break;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: value = 2; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: value = 0; break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: value = (int)at[1]; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: value = (int)at[2]; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: value = (int)at[0]; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: value = (int)soft_setting("SOFTCUDA_SM", 90) / 10; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: value = (int)soft_setting("SOFTCUDA_SM", 90) % 10; break;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
		value = !soft_setting("SOFTCUDA_HOST_ALIAS", 0);
		break;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: value = 1; break;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		value = !soft_setting("SOFTCUDA_NO_VMM", 0);
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: value = 0; break;
	default: return soft_leave(CUDA_ERROR_INVALID_VALUE);
	}
	*pi = value;
	return soft_leave(CUDA_SUCCESS);
}
