/*
 * Types of elements: how those of Python's buffers and of DLPack are moved and reduced by the library.
 *
 * A bool travels as one u8, a complex number as two floats. What has no row is opaque: moved as bytes, never reduced.
 */
#include <math.h>
#include <string.h>

#include "binding.h"

#include "dlpack.h"

static const struct element elements[] = {
        {"i8", CLASS_INT, COLL_I8, 1, 1, "b", DL_INT},
        {"u8", CLASS_INT, COLL_U8, 1, 1, "B", DL_UINT},
        {"i16", CLASS_INT, COLL_I16, 1, 2, "h", DL_INT},
        {"u16", CLASS_INT, COLL_U16, 1, 2, "H", DL_UINT},
        {"i32", CLASS_INT, COLL_I32, 1, 4, "i", DL_INT},
        {"u32", CLASS_INT, COLL_U32, 1, 4, "I", DL_UINT},
        {"i64", CLASS_INT, COLL_I64, 1, 8, "q", DL_INT},
        {"u64", CLASS_INT, COLL_U64, 1, 8, "Q", DL_UINT},
        {"f16", CLASS_FLOAT, COLL_F16, 1, 2, "e", DL_FLOAT},
        {"f32", CLASS_FLOAT, COLL_F32, 1, 4, "f", DL_FLOAT},
        {"f64", CLASS_FLOAT, COLL_F64, 1, 8, "d", DL_FLOAT},
        {"bool", CLASS_BOOL, COLL_U8, 1, 1, "?", DL_BOOL},
        {"c64", CLASS_COMPLEX, COLL_F32, 2, 8, "Zf", DL_COMPLEX},
        {"c128", CLASS_COMPLEX, COLL_F64, 2, 16, "Zd", DL_COMPLEX},
        /* These have no format of their own in the buffer protocol. */
        {"bf16", CLASS_FLOAT, COLL_BF16, 1, 2, "H", DL_BFLOAT},
        {"f8e4m3", CLASS_FLOAT, COLL_F8E4M3, 1, 1, "B", DL_F8_E4M3FN},
        {"f8e5m2", CLASS_FLOAT, COLL_F8E5M2, 1, 1, "B", DL_F8_E5M2},
};
enum { ELEMENTS = sizeof(elements) / sizeof(elements[0]) };

const struct element coll_py_opaque = {"bytes", CLASS_OPAQUE, COLL_U8, 1, 1, "B", -1};

const struct element *coll_py_element_by_name(const char *name)
{
	for (int i = 0; i < ELEMENTS; i++)
		if (strcmp(elements[i].name, name) == 0)
			return &elements[i];
	return NULL;
}

static const struct element *find(int dl_code, Py_ssize_t bytes)
{
	for (int i = 0; i < ELEMENTS; i++)
		if (elements[i].dl_code == dl_code && elements[i].bytes == bytes)
			return &elements[i];
	return &coll_py_opaque;
}

const struct element *coll_py_element_by_dlpack(int code, int bits)
{
	return bits % 8 == 0 ? find(code, bits / 8) : &coll_py_opaque;
}

/* The sizes of C's types depend on the machine: class by letter, size by the item. Letters of other byte orders are
 * opaque. */
const struct element *coll_py_element_by_format(const char *format, Py_ssize_t item_bytes)
{
	const char *letter = format ? format : "B";
	bool wide = item_bytes > 1;

	if (*letter == '@' || *letter == '=')
		letter++;
	else if (*letter == (PY_BIG_ENDIAN ? '>' : '<') || (!wide && *letter && strchr("<>!", *letter)))
		letter++;
	if (letter[0] == 'Z' && (letter[1] == 'f' || letter[1] == 'd') && !letter[2])
		return find(DL_COMPLEX, item_bytes);
	if (!letter[0] || letter[1])
		return &coll_py_opaque;
	if (strchr("bhilqn", letter[0]))
		return find(DL_INT, item_bytes);
	if (strchr("BHILQN", letter[0]))
		return find(DL_UINT, item_bytes);
	if (strchr("efd", letter[0]))
		return find(DL_FLOAT, item_bytes);
	if (letter[0] == 'F' || letter[0] == 'D')
		return find(DL_COMPLEX, item_bytes);
	return letter[0] == '?' ? find(DL_BOOL, item_bytes) : &coll_py_opaque;
}

const struct element *coll_py_element_of(coll_dtype type)
{
	const char *name = coll_dtype_name(type);

	return name ? coll_py_element_by_name(name) : NULL;
}

bool coll_py_element_is_plain(const struct element *e)
{
	return e->class != CLASS_COMPLEX && (e->class != CLASS_FLOAT || e->wire == COLL_F32 || e->wire == COLL_F64);
}

/* A float in an integer: sign, exponent of so many bits, mantissa. finite: the largest exponent has numbers too, and
 * NaN alone in its last one (e4m3fn, https://arxiv.org/abs/2209.05433). */
static double small_float(unsigned bits, int exponent_bits, int mantissa_bits, bool finite)
{
	const unsigned ones = (1U << mantissa_bits) - 1, largest = (1U << exponent_bits) - 1, mantissa = bits & ones,
	               exponent = bits >> mantissa_bits & largest;
	const int least = 2 - (1 << (exponent_bits - 1)) - mantissa_bits; /* of the last bit of subnormals */
	double value;

	if (exponent == largest && (!finite || mantissa == ones))
		value = mantissa ? NAN : INFINITY;
	else if (exponent == 0)
		value = ldexp(mantissa, least);
	else
		value = ldexp(mantissa + ones + 1, least + (int)exponent - 1);
	return bits >> (mantissa_bits + exponent_bits) & 1 ? -value : value;
}

PyObject *coll_py_element_number(const struct element *e, const char *at)
{
	uint16_t half = 0;
	double two[2];
	float pair[2];

	if (e->class == CLASS_COMPLEX && e->wire == COLL_F64) {
		memcpy(two, at, sizeof(two));
		return PyComplex_FromDoubles(two[0], two[1]);
	}
	if (e->class == CLASS_COMPLEX) {
		memcpy(pair, at, sizeof(pair));
		return PyComplex_FromDoubles(pair[0], pair[1]);
	}
	if (e->bytes == 2)
		memcpy(&half, at, sizeof(half));
	switch (e->wire) {
	case COLL_F16: return PyFloat_FromDouble(small_float(half, 5, 10, false));
	case COLL_BF16: return PyFloat_FromDouble(small_float(half, 8, 7, false));
	case COLL_F8E4M3: return PyFloat_FromDouble(small_float((unsigned char)*at, 4, 3, true));
	default: return PyFloat_FromDouble(small_float((unsigned char)*at, 5, 2, false));
	}
}
