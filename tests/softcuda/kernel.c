/*
 * Modules and launches. A module is the PTX text that a real driver would translate; here it only
 * says which kernels there are. The code of a kernel was compiled into this library, and put
 * itself into the table under its name.
 */
#include "tests/softcuda/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUmod_st {
	CUcontext ctx;
	bool dead;
	char *text;
	struct CUfunc_st *functions;
	struct CUmod_st *next;
};

struct CUfunc_st {
	CUmodule module;
	const struct soft_kernel *kernel;
	bool loaded;
	int shared_max;
	struct CUfunc_st *next;
};

static struct soft_kernel *kernels;
static CUmodule modules;

void soft_kernel_add(struct soft_kernel *kernel)
{
	kernel->next = kernels;
	kernels = kernel;
}

const struct soft_kernel *soft_kernel_named(const char *name, size_t len)
{
	const struct soft_kernel *k = kernels;

	while (k && !(strlen(k->name) == len && memcmp(k->name, name, len) == 0))
		k = k->next;
	return k;
}

/* ---- modules ---- */

static int ptx_number(const char *text, const char *directive, int scale)
{
	const char *at = strstr(text, directive);
	int major = 0, minor = 0;

	if (!at || sscanf(at + strlen(directive), "%d.%d", &major, &minor) < 1)
		return -1;
	return major * scale + minor;
}

/* The newest PTX that a driver takes: 7.0 to 7.8 came with CUDA 11.0 to 11.8, 8.x with 12.x, 9.x with 13.x. */
static int ptx_newest(void)
{
	const int major = soft.version / 1000, minor = soft.version % 1000 / 10;

	return major >= 11 ? (major - 4) * 10 + minor : major == 10 ? 63 + minor : 60;
}

/* Whether the text has the entry: the word .entry, blanks, the name. */
static bool has_entry(const char *text, const char *name)
{
	const size_t len = strlen(name);

	for (const char *p = text; (p = strstr(p, ".entry")); p += 6) {
		const char *q = p + 6 + strspn(p + 6, " \t\n");

		if (strncmp(q, name, len) == 0 && strchr(" \t\n(", q[len]))
			return true;
	}
	return false;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	const char *text = image;
	CUcontext ctx;
	CUresult result;
	CUmodule m;
	int version, target;

	ENTER_CTX(cuModuleLoadData, ctx);
	if (!out || !image)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	if (!strstr(text, ".version"))
		return soft_leave(CUDA_ERROR_INVALID_IMAGE);
	version = ptx_number(text, ".version", 10);
	target = ptx_number(text, ".target sm_", 1);
	if (version < 0 || target < 0)
		return soft_leave(CUDA_ERROR_INVALID_PTX);
	if (version > ptx_newest() && !soft_planted(RULE_ptx_version))
		return soft_leave(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	if (target > soft_setting("SOFTCUDA_SM", 90))
		return soft_leave(CUDA_ERROR_NO_BINARY_FOR_GPU);
	m = calloc(1, sizeof(*m));
	if (!m || !(m->text = strdup(text)))
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	m->ctx = ctx;
	m->next = modules;
	modules = m;
	*out = m;
	return soft_leave(CUDA_SUCCESS);
}

static bool is_module(CUmodule module)
{
	for (CUmodule m = modules; m; m = m->next)
		if (m == module)
			return !m->dead;
	return false;
}

CUresult cuModuleUnload(CUmodule module)
{
	CUcontext ctx;

	ENTER_CTX(cuModuleUnload, ctx);
	if (!is_module(module))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	soft_drain(ctx, false, "cuModuleUnload");
	module->dead = true;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	const struct soft_kernel *k;
	CUcontext ctx;
	CUfunction f;

	ENTER_CTX(cuModuleGetFunction, ctx);
	if (!out || !name)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_module(module))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	for (f = module->functions; f; f = f->next) {
		if (strcmp(f->kernel->name, name) == 0) {
			*out = f;
			return soft_leave(CUDA_SUCCESS);
		}
	}
	if (!has_entry(module->text, name) && !soft_planted(RULE_module_entries))
		return soft_leave(CUDA_ERROR_NOT_FOUND);
	k = soft_kernel_named(name, strlen(name));
	if (!k) {
		fprintf(stderr, "softcuda: the PTX has %s, but it was not compiled into the stand-in\n", name);
		return soft_leave(CUDA_ERROR_NOT_FOUND);
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	f->module = module;
	f->kernel = k;
	f->shared_max = 48 << 10;
	f->loaded = soft.eager;
	f->next = module->functions;
	module->functions = f;
	*out = f;
	return soft_leave(CUDA_SUCCESS);
}

static bool is_function(CUfunction function)
{
	for (CUmodule m = modules; m; m = m->next)
		for (CUfunction f = m->functions; f; f = f->next)
			if (f == function)
				return !m->dead;
	return false;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f)
{
	CUcontext ctx;

	ENTER_CTX(cuFuncGetAttribute, ctx);
	if (!value)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_function(f))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->shared_max; break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = ptx_number(f->module->text, ".version", 10); break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = (int)soft_setting("SOFTCUDA_SM", 90); break;
	default: *value = 0; break;
	}
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value)
{
	CUcontext ctx;

	ENTER_CTX(cuFuncSetAttribute, ctx);
	if (!is_function(f))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > 227 << 10)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	f->shared_max = value;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared)
{
	CUcontext ctx;

	ENTER_CTX(cuOccupancyMaxActiveBlocksPerMultiprocessor, ctx);
	if (!is_function(f))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!blocks || threads <= 0 || threads > 1024)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*blocks = 2048 / threads < 16 ? 2048 / threads : 16;
	return soft_leave(CUDA_SUCCESS);
}

/* ---- launches ---- */

static bool fits(const unsigned *blocks, const unsigned *threads, unsigned shared, CUfunction f)
{
	if (soft_planted(RULE_launch_sizes))
		return true;
	for (int i = 0; i < 3; i++)
		if (!blocks[i] || !threads[i])
			return false;
	return blocks[0] <= 0x7fffffff && blocks[1] <= 65535 && blocks[2] <= 65535 && threads[0] <= 1024 &&
	       threads[1] <= 1024 && threads[2] <= 64 && (uint64_t)threads[0] * threads[1] * threads[2] <= 1024 &&
	       shared <= (unsigned)f->shared_max;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream handle, void **params, void **extra)
{
	const unsigned blocks[3] = {gx, gy, gz}, threads[3] = {bx, by, bz};
	struct soft_work work = {.kind = OP_KERNEL};
	struct soft_op *op = NULL;
	CUcontext ctx;
	CUresult result;
	CUstream s;

	ENTER_CTX(cuLaunchKernel, ctx);
	result = soft_stream(ctx, handle, &s);
	if (result)
		return soft_leave(result);
	if (!is_function(f) || (f->module->ctx != s->ctx && !soft_planted(RULE_mixed_contexts)))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!fits(blocks, threads, shared, f) || !params || extra || f->kernel->args_len > SOFT_ARGS_MAX)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!f->loaded && !soft_planted(RULE_lazy_launch)) {
		if (s->capture) /* loading needs the device: not inside a capture */
			return soft_leave(soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
		soft_drain(s->ctx, true, "the first launch of a kernel");
	}
	f->loaded = true;
	work.launch.kernel = f->kernel;
	work.launch.unloaded = &f->module->dead;
	work.launch.blocks = (struct soft_index){gx, gy, gz};
	work.launch.threads = (struct soft_index){bx, by, bz};
	work.launch.shared_len = shared;
	work.launch.args = malloc(f->kernel->args_len);
	if (!work.launch.args)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	memcpy(work.launch.args, params[0], f->kernel->args_len);
	result = soft_enqueue(s, &work, &op);
	if (op) {
		if (soft.launch_blocking && !soft_planted(RULE_launch_blocking)) {
			soft_wait(op, "a launch with CUDA_LAUNCH_BLOCKING=1");
			result = s->ctx->error;
		}
		soft_op_unref(op);
	}
	return soft_leave(result);
}
