/*
 * Checks of settings that each rank can make alone, independent of the machine.
 *
 * A value out of range is an error at creation, and the error names the setting. The code that uses
 * a setting interprets its value. Texts that depend on the machine (interfaces, devices, kernels)
 * are checked where they are used.
 */
#include "comm/settings.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/link_rates.h"
#include "bootstrap/address.h"
#include "core/comm.h"
#include "core/entry.h"
#include "core/error.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "select/forced.h"
#include "topology/search.h"

enum { SLOTS_MAX = 256, TCP_BUFFER_MAX = (1 << 30) - 1 };

struct number {
	const char *name;
	int value, least, most;
};

static coll_status check_number(const struct number *n, struct coll_error_box *err)
{
	if (n->value >= n->least && n->value <= n->most)
		return COLL_OK;
	if (n->most == INT_MAX)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s=%d: expected %d or more", n->name, n->value,
		                      n->least);
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s=%d: expected %d to %d", n->name, n->value, n->least,
	                      n->most);
}

static coll_status check_numbers(const struct coll_settings *s, struct coll_error_box *err)
{
	const struct number numbers[] = {{"COLL_TIMEOUT_MS", s->timeout_ms, 1, INT_MAX},
	                                 {"COLL_UNREACHABLE_MS", s->unreachable_ms, 1, INT_MAX},
	                                 {"COLL_ARRIVAL_TIMEOUT_MS", s->arrival_timeout_ms, 1, INT_MAX},
	                                 {"COLL_CREATE_TIMEOUT_MS", s->create_timeout_ms, 1, INT_MAX},
	                                 {"COLL_METRICS_S", s->metrics_s, 1, 3600},
	                                 {"COLL_WARN_MS", s->warn_ms, 0, INT_MAX},
	                                 {"COLL_SPIN_US", s->spin_us, 0, INT_MAX},
	                                 {"COLL_SITE_RATE", s->site_rate, 0, COLL_LINK_RATE_MAX},
	                                 {"COLL_WINDOWS", s->windows, 0, INT_MAX},
	                                 {"COLL_TEST_CORES", s->test_cores, 0, 1 << 20},
	                                 {"COLL_RDMA_TRAFFIC_CLASS", s->rdma_traffic_class, 0, 255},
	                                 {"COLL_RDMA_TIMEOUT", s->rdma_timeout, 0, 31},
	                                 {"COLL_RDMA_RETRY", s->rdma_retry, 0, 7},
	                                 {"COLL_RDMA_IMMEDIATE", s->rdma_immediate, -1, 1},
	                                 {"COLL_RDMA_POLLED", s->rdma_polled, 0, 1}};
	coll_status st = COLL_OK;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && st == COLL_OK; i++)
		st = check_number(&numbers[i], err);
	if (st == COLL_OK && (s->slots == 1 || s->slots < 0 || s->slots > SLOTS_MAX))
		st = coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_SLOTS=%d: a channel has 2 to %d slots",
		                    s->slots, SLOTS_MAX);
	if (st == COLL_OK && s->site_rate > 0 && !s->site[0])
		st = coll_error_set(err, COLL_ERR_CONFIG,
		                    "[COLL-1106] COLL_SITE_RATE=%d: the rate of a site that COLL_SITE does not name",
		                    s->site_rate);
	return st;
}

/* Check a setting that is a whole number or empty. */
static coll_status check_optional(const char *name, const char *text, unsigned long most, struct coll_error_box *err)
{
	char *end;
	unsigned long n;

	if (!text[0])
		return COLL_OK;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (isdigit((unsigned char)text[0]) && !*end && !errno && n <= most)
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s=%s: expected a whole number up to %lu", name, text,
	                      most);
}

/* Check that the text is one of the words in `words`, which blanks separate. */
static coll_status check_word(const char *name, const char *text, const char *words, struct coll_error_box *err)
{
	const size_t len = strlen(text);

	for (const char *w = words; *w; w += strcspn(w, " "), w += *w == ' ')
		if (strcspn(w, " ") == len && memcmp(w, text, len) == 0)
			return COLL_OK;
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s=%s: expected one of %s", name, text, words);
}

static coll_status check_link_rates(const char *text, struct coll_error_box *err)
{
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char why[160];

	if (coll_link_rates_parse(text, list, why, sizeof(why)) >= 0)
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_LINK_RATES=%.80s: %s", text, why);
}

/* "auto", or a list of levels. */
static bool read_levels(const char *text, unsigned *levels, char *why, size_t why_bytes)
{
	*levels = 0;
	return strcmp(text, "auto") == 0 || coll_search_parse_levels(text, levels, why, why_bytes);
}

unsigned coll_settings_levels(const struct coll_settings *settings)
{
	unsigned levels;
	char why[200];

	return read_levels(settings->levels, &levels, why, sizeof(why)) ? levels : 0;
}

/* The lock: drivers read the limits of pending calls. */
coll_status coll_comm_set_timeout(coll_comm *comm, int timeout_ms, int arrival_timeout_ms)
{
	if (coll_entry_no_comm(comm, "comm_set_timeout"))
		return COLL_ERR_ARGUMENT;
	if (timeout_ms == 0 || timeout_ms < -1 || arrival_timeout_ms == 0 || arrival_timeout_ms < -1)
		return coll_comm_refuse(comm, "comm_set_timeout", COLL_ERR_ARGUMENT,
		                        "timeout_ms is %d and arrival_timeout_ms is %d: expected 1 or more, or -1 for "
		                        "the setting",
		                        timeout_ms, arrival_timeout_ms);
	coll_async_lock(comm->ctx);
	comm->timeout_ms = timeout_ms < 0 ? comm->ctx->settings.timeout_ms : timeout_ms;
	comm->arrival_timeout_ms = arrival_timeout_ms < 0 ? comm->ctx->settings.arrival_timeout_ms : arrival_timeout_ms;
	coll_async_unlock(comm->ctx);
	return COLL_OK;
}

coll_status coll_settings_check(const struct coll_settings *s, struct coll_error_box *err)
{
	coll_status st = check_numbers(s, err);
	uint16_t first, last;
	unsigned levels;
	char why[200];

	if (st == COLL_OK)
		st = check_optional("COLL_RDMA_GID_INDEX", s->rdma_gid_index, UINT16_MAX, err);
	if (st == COLL_OK)
		st = check_optional("COLL_RDMA_MESSAGE_MAX", s->rdma_message_max, UINT32_MAX, err);
	if (st == COLL_OK)
		st = check_word("COLL_PROGRESS", s->progress, "on off auto", err);
	if (st == COLL_OK)
		st = check_word("COLL_LAYOUT", s->layout, "auto flat", err);
	if (st == COLL_OK && !read_levels(s->levels, &levels, why, sizeof(why)))
		st = coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_LEVELS=%s: %s, or auto", s->levels, why);
	if (st == COLL_OK)
		st = check_word("COLL_SHM_COPY", s->shm_copy, "auto cached streamed cma", err);
	if (st == COLL_OK)
		st = check_word("COLL_CHECK", s->check, "links all none", err);
	if (st == COLL_OK)
		st = check_word("COLL_TCP_SOCKETS", s->tcp_sockets, "auto 1 2 3 4 5 6 7 8", err);
	if (st == COLL_OK)
		st = check_link_rates(s->link_rates, err);
	if (st == COLL_OK && s->tcp_buffer > TCP_BUFFER_MAX)
		st = coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_TCP_BUFFER=%zu: expected less than 1G",
		                    s->tcp_buffer);
	if (st == COLL_OK && coll_select_check_forced(s->algo, why, sizeof(why)) != COLL_OK)
		st = coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s", why);
	return st == COLL_OK ? coll_port_range(s, &first, &last, err) : st;
}
