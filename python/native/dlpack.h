/*
 * The binary interface of DLPack 1.x, as far as it is needed to read tensors of other libraries and to offer our own
 * (https://dmlc.github.io/dlpack/latest/c_api.html). The layouts are fixed by that standard; the names are ours.
 */
#ifndef COLL_PYTHON_DLPACK_H
#define COLL_PYTHON_DLPACK_H

#include <stdint.h>

enum dl_device {
	DL_CPU = 1,
	DL_CUDA = 2,
	DL_CUDA_HOST = 3,
	DL_ROCM = 10,
	DL_ROCM_HOST = 11,
	DL_CUDA_MANAGED = 13,
};

enum dl_code {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_BFLOAT = 4,
	DL_COMPLEX = 5,
	DL_BOOL = 6,
	DL_F8_E4M3FN = 10,
	DL_F8_E5M2 = 12,
};

enum { DL_FLAG_READ_ONLY = 1, DL_MAJOR = 1, DL_MINOR = 0 };

struct dl_version {
	uint32_t major, minor;
};

struct dl_tensor {
	void *data;
	int32_t device, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: C-contiguous */
	uint64_t byte_offset;
};

/* In a capsule named "dltensor". */
struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

/* In a capsule named "dltensor_versioned". */
struct dl_managed_versioned {
	struct dl_version version;
	void *context;
	void (*deleter)(struct dl_managed_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

/* What the attribute __dlpack_c_exchange_api__ of a type holds, in a capsule named "dlpack_exchange_api". */
struct dl_exchange {
	struct dl_version version;
	struct dl_exchange *older;
	int (*allocate)(struct dl_tensor *prototype, struct dl_managed_versioned **out, void *error_context,
	                void (*set_error)(void *error_context, const char *kind, const char *message));
	int (*managed_from_object)(void *object, struct dl_managed_versioned **out);
	int (*managed_to_object)(struct dl_managed_versioned *tensor, void **out);
	/* Fills *out for as long as the object lives unchanged; may be NULL. 0, or -1 with an exception set. */
	int (*tensor_from_object)(void *object, struct dl_tensor *out);
	/* The stream in which that library's work on the device goes now. 0, or -1 with an exception set. */
	int (*current_stream)(int32_t device, int32_t device_id, void **out);
};

#endif
