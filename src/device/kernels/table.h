/*
 * The device kernels, one row each: what the loader asks the driver for, what the check of the PTX
 * expects, what the stand-in driver offers, and the order of the indices in device/kernels.h.
 *
 * COLL_KERNELS(X): X(entry, args), with the name of the entry and the struct of its argument.
 * COLL_KERNELS_REDUCE(R): the reductions among them, one per type, as R(T, TYPE, class): the type
 * in element.h, its public constant, and INTEGER, REAL or NARROW. The operation is an argument, since
 * a type's operations share most of their code and the driver compiles all of it when it is loaded.
 */
#ifndef COLL_DEVICE_KERNELS_TABLE_H
#define COLL_DEVICE_KERNELS_TABLE_H

#define COLL_KERNELS(X)                                       \
	X(coll_kernel_copy, coll_kernel_copy_args)            \
	X(coll_kernel_gather, coll_kernel_gather_args)        \
	X(coll_kernel_pieces, coll_kernel_pieces_args)        \
	X(coll_kernel_listed, coll_kernel_listed_args)        \
	X(coll_kernel_look, coll_kernel_look_args)            \
	X(coll_kernel_fetch, coll_kernel_fetch_args)          \
	X(coll_kernel_signal, coll_kernel_signal_args)        \
	X(coll_kernel_reduce_i8, coll_kernel_reduce_args)     \
	X(coll_kernel_reduce_u8, coll_kernel_reduce_args)     \
	X(coll_kernel_reduce_i16, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_u16, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_i32, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_u32, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_i64, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_u64, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_f16, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_bf16, coll_kernel_reduce_args)   \
	X(coll_kernel_reduce_f32, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_f64, coll_kernel_reduce_args)    \
	X(coll_kernel_reduce_f8e4m3, coll_kernel_reduce_args) \
	X(coll_kernel_reduce_f8e5m2, coll_kernel_reduce_args)

#define COLL_KERNELS_REDUCE(R)         \
	R(i8, COLL_I8, INTEGER)        \
	R(u8, COLL_U8, INTEGER)        \
	R(i16, COLL_I16, INTEGER)      \
	R(u16, COLL_U16, INTEGER)      \
	R(i32, COLL_I32, INTEGER)      \
	R(u32, COLL_U32, INTEGER)      \
	R(i64, COLL_I64, INTEGER)      \
	R(u64, COLL_U64, INTEGER)      \
	R(f16, COLL_F16, NARROW)       \
	R(bf16, COLL_BF16, NARROW)     \
	R(f32, COLL_F32, REAL)         \
	R(f64, COLL_F64, REAL)         \
	R(f8e4m3, COLL_F8E4M3, NARROW) \
	R(f8e5m2, COLL_F8E5M2, NARROW)

#endif
