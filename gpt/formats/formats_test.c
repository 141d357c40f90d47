/*
 * Files of others, and states: what is written is read, and what is damaged or forged is refused.
 */
#include "gpt/formats/crc32c.h"
#include "gpt/formats/crc32c_inner.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include "gpt/formats/jsonl.h"
#include "gpt/formats/state.h"
#include "gpt/rng.h"
#include "gpt/test_util.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void make_folder(void)
{
	strcpy(dir, "/tmp/gpt_formats_XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void remove_folder(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(formats, .init = make_folder, .fini = remove_folder);

static const char *in(const char *name)
{
	static char path[GPT_PATH_MAX];

	cr_assert_eq(gpt_path(path, dir, name), 0);
	return path;
}

Test(formats, crc32c)
{
	uint8_t x[100];

	cr_assert_eq(gpt_crc32c(0, "123456789", 9), 0xe3069283u);
	for (size_t i = 0; i < sizeof(x); i++)
		x[i] = (uint8_t)(i * 37 + 11);
	for (size_t n = 0; n <= sizeof(x); n++)
		for (size_t cut = 0; cut <= n; cut += 7) {
			const uint32_t whole = gpt_crc32c_table(0, x, n);

			cr_assert_eq(gpt_crc32c(0, x, n), whole);
			cr_assert_eq(gpt_crc32c(gpt_crc32c(0, x, cut), x + cut, n - cut), whole);
		}
}

/* A file with this header and so many bytes of data behind it; less < 0: cut off by so many. */
static void put_file(const char *header, size_t data_bytes)
{
	const uint64_t n = strlen(header);
	FILE *f = fopen(in("x"), "wb");

	cr_assert(f);
	fwrite(&n, sizeof(n), 1, f);
	fwrite(header, 1, n, f);
	for (size_t i = 0; i < data_bytes; i++)
		fputc((int)i, f);
	fclose(f);
}

Test(formats, headers_of_safetensors)
{
	static const struct {
		const char *header;
		size_t data_bytes;
		const char *why; /* NULL: it is read */
	} cases[] = {
	        {"{}", 0, NULL},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   \n", 8, NULL},
	        {"{\"b\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[8,10]},\"a\":{\"dtype\":\"F32\",\"shape\":["
	         "2],"
	         "\"data_offsets\":[0,8]}}",
	         10, NULL},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,0],\"more\":1}}", 0, NULL},
	        {"{\"\\u0061\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, NULL},
	        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, NULL},
	        {"{\"__metadata__\":{\"format\":1}}", 0, "is no string"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "end early"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "go on"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "a hole"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":["
	         "2],"
	         "\"data_offsets\":[4,12]}}",
	         12, "an overlap"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "do not fit its shape"},
	        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "whole numbers"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "whole numbers"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
	         "whole numbers"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "in order"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "needs dtype"},
	        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"F32\",\"shape\":["
	         "0],"
	         "\"data_offsets\":[0,0]}}",
	         0, "duplicate"},
	        {" {}", 0, "no JSON object"},
	        {"[]", 0, "no JSON object"},
	        {"{\"a\"", 0, "byte "},
	        {"", 0, "no JSON object"},
	};
	char why[GPT_PATH_MAX + 256];
	struct gpt_st st;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put_file(cases[i].header, cases[i].data_bytes);
		why[0] = 0;
		if (!cases[i].why) {
			cr_assert_eq(gpt_st_open(&st, in("x"), why, sizeof(why)), 0, "case %zu: %s", i, why);
			gpt_st_close(&st);
		} else {
			cr_assert_neq(gpt_st_open(&st, in("x"), why, sizeof(why)), 0, "case %zu was read", i);
			cr_assert(strstr(why, cases[i].why), "case %zu: %s", i, why);
		}
	}
	cr_assert_neq(gpt_st_open(&st, in("none"), why, sizeof(why)), 0);
	cr_assert_neq(gpt_st_open(&st, dir, why, sizeof(why)), 0);
}

Test(formats, files_shorter_than_their_header)
{
	static const uint64_t lengths[] = {100, 100000001, UINT64_MAX};
	char why[GPT_PATH_MAX + 256];
	struct gpt_st st;

	for (size_t i = 0; i < 3; i++)
		for (size_t n = 0; n < 12; n++) {
			FILE *f = fopen(in("x"), "wb");

			cr_assert(f);
			fwrite(&lengths[i], 1, n < 8 ? n : 8, f);
			fwrite("{}  ", 1, n > 8 ? n - 8 : 0, f);
			fclose(f);
			cr_assert_neq(gpt_st_open(&st, in("x"), why, sizeof(why)), 0);
		}
}

/* A model of this shape with numbers of its own. */
static float *numbers(const struct gpt_shape *s)
{
	const size_t n = gpt_param_count(s);
	float *x = malloc(n * sizeof(*x));

	cr_assert(x);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(i % 1000) / 64 - 5;
	return x;
}

Test(formats, a_model_comes_back)
{
	struct gpt_hf hf = {.shape = {40, 8, 2, 2, 12}, .has_tokenizer = true, .dropout = 0.25}, got;
	float *x = numbers(&hf.shape);
	const size_t n = gpt_param_count(&hf.shape);
	const char *const text = "\n !\xff\xc3\xbc the quick brown fox jumps";
	char why[GPT_PATH_MAX + 256] = "";

	gpt_tokenizer_init(&hf.tokenizer, GPT_VOCAB_CHAR, (const uint8_t *)text, strlen(text));
	/* The rows without tokens are not written; the second time it replaces the first. */
	for (int half = 0; half < 2; half++) {
		cr_assert_eq(gpt_hf_write(in("model"), &hf, x, half), 0);
		cr_assert_eq(gpt_hf_read(in("model"), true, &got, why, sizeof(why)), 0, "%s", why);
		cr_assert_eq(got.shape.vocab, hf.tokenizer.size);
		cr_assert_eq(got.shape.layers, 2);
		cr_assert_eq(got.dropout, 0.25);
		cr_assert_eq(memcmp(got.tokenizer.byte_of, hf.tokenizer.byte_of, (size_t)hf.tokenizer.size), 0);
		cr_assert_eq(memcmp(got.tokenizer.token_of, hf.tokenizer.token_of, sizeof(hf.tokenizer.token_of)), 0);
		for (size_t i = 0; i < n - (size_t)(40 - got.shape.vocab) * 12; i++)
			cr_assert(half ? fabsf(got.weights[i] - x[i]) <= fabsf(x[i]) / 256 : got.weights[i] == x[i],
			          "%zu", i);
		free(got.weights);
	}
	cr_assert_eq(gpt_directory_remove(in("model")), 0);
	free(x);
}

Test(formats, configurations_that_are_refused)
{
	static const struct {
		const char *json, *why;
	} cases[] = {{"{\"model_type\":\"llama\"}", "not llama"},
	             {"{}", "model_type"},
	             {"{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"}", "activation_function"},
	             {"{\"model_type\":\"gpt2\",\"n_inner\":5}", "n_inner"},
	             {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":1e-6}", "layer_norm_epsilon"},
	             {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}", "inverse"},
	             {"{\"model_type\":\"gpt2\",\"n_layer\":0}", "n_layer"},
	             {"{\"model_type\":\"gpt2\",\"n_layer\":\"2\"}", "n_layer"},
	             {"{\"model_type\":\"gpt2\",\"n_head\":5}", "multiple"},
	             {"{\"model_type\":\"gpt2\"}", "neither model.safetensors nor"},
	             {"[]", "not a JSON object"}};
	char why[GPT_PATH_MAX + 256];
	struct gpt_hf got;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cr_assert_eq(gpt_file_replace(in("config.json"), cases[i].json, strlen(cases[i].json)), 0);
		cr_assert_neq(gpt_hf_read(dir, true, &got, why, sizeof(why)), 0, "case %zu was read", i);
		cr_assert(strstr(why, cases[i].why), "case %zu: %s", i, why);
	}
}

Test(formats, names_of_states)
{
	struct gpt_state_name name, *names;
	char text[96];
	size_t count;
	static const char *const made[] = {"step-00000100-1.0",
	                                   "step-00000020-2.0",
	                                   "step-00000090-1.0",
	                                   "step-00000030-2.0",
	                                   "step-00000100-1.0.part-host-1",
	                                   "step-5-1.0"};

	cr_assert(gpt_state_parse("step-00000100-2.3", &name));
	cr_assert_eq(name.step * 100 + name.start * 10 + name.epoch, 10023);
	gpt_state_format(&name, text, sizeof(text));
	cr_assert_str_eq(text, "step-00000100-2.3");
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++)
		cr_assert_eq(mkdir(in(made[i]), 0777), 0);
	cr_assert_eq(gpt_state_list(dir, &names, &count), 0);
	cr_assert_eq(count, 4);
	cr_assert_eq(names[0].step * 10 + names[0].start, 302);
	cr_assert_eq(names[1].step, 20);
	cr_assert_eq(names[3].step, 90);
	free(names);
	gpt_state_sweep(dir);
	cr_assert_eq(access(in(made[4]), F_OK), -1);
	cr_assert_eq(access(in(made[5]), F_OK), 0);
}

/* A state of these parts, {first, count} of each; NULL ends them. */
static int try_state(uint64_t params, const uint64_t (*spans)[2], size_t count, char *why, size_t why_bytes,
                     struct gpt_state *s)
{
	static float x[1000];
	json_t *parts = json_array();
	char *text;
	int rc;

	for (size_t i = 0; i < 1000; i++)
		x[i] = (float)i;
	mkdir(in("state"), 0777);
	for (size_t i = 0; i < count; i++) {
		const uint64_t first = spans[i][0], n = spans[i][1];
		const struct gpt_state_range ranges[] = {{GPT_STATE_WEIGHTS, first, n, x + first},
		                                         {GPT_STATE_M, first, n, x + first},
		                                         {GPT_STATE_V, first, n, x + first}};
		char name[64];
		struct gpt_file f;

		snprintf(name, sizeof(name), "state/part-%05zu.safetensors", i);
		cr_assert_eq(gpt_file_create(&f, in(name)), 0);
		cr_assert_eq(gpt_state_put_part(&f.sink, ranges, 3), 0);
		cr_assert_eq(f.sink.bytes, gpt_state_part_bytes(ranges, 3));
		cr_assert_eq(gpt_file_close(&f, true), 0);
		json_array_append_new(parts, json_pack("{s:s, s:o, s:o}", "file", name + 6, "bytes",
		                                       gpt_json_u64(f.sink.bytes), "crc32c",
		                                       json_sprintf("%08x", f.sink.crc32c)));
	}
	text = gpt_json_sealed_text(json_pack("{s:s, s:i, s:o, s:o}", "format", "coll-gpt-state", "version", 1,
	                                      "params", gpt_json_u64(params), "parts", parts));
	cr_assert_eq(gpt_file_replace(in("state/state.json"), text, strlen(text)), 0);
	free(text);
	rc = gpt_state_open(s, in("state"), why, why_bytes);
	return rc;
}

Test(formats, states_cover_everything_once)
{
	static const struct {
		uint64_t spans[3][2];
		size_t count;
		const char *why;
	} cases[] = {{{{0, 100}}, 1, NULL},
	             {{{64, 36}, {0, 32}, {32, 32}}, 3, NULL},
	             {{{0, 50}, {51, 49}}, 2, "a hole at element 50"},
	             {{{0, 99}}, 1, "a hole at element 99"},
	             {{{0, 60}, {40, 60}}, 2, "an overlap at element 40"},
	             {{{0, 100}, {0, 100}}, 2, "an overlap at element 0"},
	             {{{0, 101}}, 1, "more than"}};
	char why[GPT_PATH_MAX + 256] = "";
	struct gpt_state s;
	float x[30];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int rc = try_state(100, cases[i].spans, cases[i].count, why, sizeof(why), &s);

		cr_assert_eq(rc == 0, !cases[i].why, "case %zu: %s", i, why);
		cr_assert(!cases[i].why || strstr(why, cases[i].why), "case %zu: %s", i, why);
		if (rc)
			continue;
		cr_assert_eq(gpt_state_check(&s, why, sizeof(why)), 0, "%s", why);
		cr_assert_eq(gpt_state_read(&s, GPT_STATE_M, 20, 30, x), 0);
		for (int k = 0; k < 30; k++)
			cr_assert_eq(x[k], 20 + k);
		gpt_state_close(&s);
	}
}

Test(formats, shares_fill_everything)
{
	for (uint64_t total = 1; total < 300; total += 7)
		for (int n = 1; n < 9; n++) {
			uint64_t at = 0, first, end;

			for (int i = 0; i < n; i++) {
				gpt_state_share(total, i, n, &first, &end);
				cr_assert(first == at && end >= first && (end % 16 == 0 || end == total));
				at = end;
			}
			cr_assert_eq(at, total);
		}
}

Test(formats, a_sealed_file_with_any_flipped_bit_is_refused)
{
	char *text = gpt_json_sealed_text(json_pack("{s:i, s:s}", "step", 100, "id", "x")), why[GPT_PATH_MAX + 256];
	const size_t len = strlen(text);
	json_t *got;

	cr_assert_eq(gpt_file_replace(in("x"), text, len), 0);
	got = gpt_json_read_sealed(in("x"), 1000, why, sizeof(why));
	cr_assert_eq(json_integer_value(json_object_get(got, "step")), 100);
	json_decref(got);
	for (size_t i = 0; i < len * 8; i++) {
		text[i / 8] ^= (char)(1 << i % 8);
		cr_assert_eq(gpt_file_replace(in("x"), text, len), 0);
		cr_assert_null(gpt_json_read_sealed(in("x"), 1000, why, sizeof(why)), "bit %zu", i);
		text[i / 8] ^= (char)(1 << i % 8);
	}
	free(text);
}

Test(jsonl, fields_and_what_is_wrong)
{
	static const struct {
		const char *line, *text, *why;
		bool plain;
		size_t at;
	} cases[] = {
	        {"{\"text\":\"a b\"}", "a b", NULL, true, 0},
	        {" { \"id\" : -12.5 , \"x\":\"q\\n\", \"text\" :\"\\\"\\u00e9\\u20ac/\\/\\t\", \"y\":\"later\" } \r",
	         "\"\xc3\xa9\xe2\x82\xac//\t", NULL, true, 0},
	        {"{\"n\":[1,{\"text\":\"no\"}],\"text\":\"yes\"}", "yes", NULL, false, 0},
	        {"{\"text\":\"\\ud83d\\ude42\"}", "\xf0\x9f\x99\x82", NULL, false, 0},
	        {"{\"te\\u0078t\":\"escaped\"}", "escaped", NULL, false, 0},
	        {"{\"text\":\"\\ud83d\"}", NULL, "invalid Unicode", false, 1},
	        {"{\"text\":\"a\xff\"}", NULL, "decode byte", false, 1},
	        {"{\"text\":\"a", NULL, "end of input", false, 1},
	        {"{\"text\":\"a\"} x", NULL, "end of file", false, 1},
	        {"{\"text\":\"a\",\"text\":\"b\"}", NULL, "duplicate", false, 1},
	        {"{\"other\":\"a\"}", NULL, "no field \"text\"", false, 0},
	        {"{\"text\":5}", NULL, "not a string", false, 0},
	        {"[\"text\"]", NULL, "not an object", false, 0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const size_t len = strlen(cases[i].line);
		uint8_t text[256];
		char why[256] = "";
		size_t at = 0;
		const long n = gpt_jsonl_field(cases[i].line, len, "text", text, &at, why, sizeof(why));

		cr_assert_eq(gpt_jsonl_scan(cases[i].line, len, "text", text) >= 0, cases[i].plain, "case %zu", i);
		if (cases[i].text) {
			cr_assert_eq(gpt_jsonl_field(cases[i].line, len, "text", text, &at, why, sizeof(why)), n);
			cr_assert_eq(n, (long)strlen(cases[i].text), "case %zu: %ld %s", i, n, why);
			cr_assert_eq(memcmp(text, cases[i].text, (size_t)n), 0, "case %zu", i);
			continue;
		}
		cr_assert_eq(n, -1, "case %zu", i);
		cr_assert(strstr(why, cases[i].why), "case %zu: %s", i, why);
		cr_assert(!cases[i].at || (at > 0 && at <= len), "case %zu: at %zu", i, at);
	}
}

/* Damaged lines: what the scanner takes, jansson takes, and gives the same text. */
Test(jsonl, the_scanner_takes_nothing_that_jansson_refuses)
{
	static const char line[] = "{\"id\": 12, \"a\":\"x\\\\y\", \"text\": \"Gr\xc3\xbcn "
	                           "\\u0041\\u20ac\\n\xe2\x82\xac \xf0\x9f\x99\x82\", \"z\":true,\"w\":-0.5}";
	static const char letters[] = "\"\\{}[]:,u0d8fe.-+tn \t\x01\x7f\xc3\xe2\xed\xf4\x80\xbf\xff\xc1\xe0\xf0";
	long taken = 0, refused = 0;

	for (uint64_t i = 0; i < 200000; i++) {
		char damaged[sizeof(line)];
		uint8_t text[sizeof(line)];
		json_error_t e;
		json_t *root, *value;
		size_t len = sizeof(line) - 1;
		long n;

		memcpy(damaged, line, sizeof(line));
		for (uint64_t k = 0; k <= i % 3; k++)
			damaged[gpt_random(i, 2 * k) % len] = letters[gpt_random(i, 2 * k + 1) % (sizeof(letters) - 1)];
		if (i % 16 == 0)
			len = gpt_random(i, 99) % len;
		n = gpt_jsonl_scan(damaged, len, "text", text);
		refused += n < 0;
		if (n < 0)
			continue;
		taken++;
		root = json_loadb(damaged, len, GPT_JSON_FLAGS, &e);
		value = json_object_get(root, "text");
		cr_assert(json_is_string(value), "%.*s: %s", (int)len, damaged, e.text);
		cr_assert_eq(json_string_length(value), (size_t)n, "%.*s", (int)len, damaged);
		cr_assert_eq(memcmp(json_string_value(value), text, (size_t)n), 0, "%.*s", (int)len, damaged);
		json_decref(root);
	}
	cr_assert(taken > 10000 && refused > 10000, "%ld, %ld", taken, refused);
}
