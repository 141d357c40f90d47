/*
 * Targets: texts that users and launchers write. Settings, lists of rates, rules, layouts, host lists, numbers.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/link_rates.h"
#include "base/number.h"
#include "bootstrap/address.h"
#include "device/device.h"
#include "inspect/dump_signal.h"
#include "tests/fuzz/fuzz.h"
#include "tools/plan_layout.h"
#include "topology/search.h"
#include "transports/hook/rules.h"
#include "transports/tcp/rails.h"

void fuzz_settings(const uint8_t *data, size_t len_bytes);
void fuzz_lists(const uint8_t *data, size_t len_bytes);

/* Lines of "NAME=value", by the caller, and the whole as a file. */
void fuzz_settings(const uint8_t *data, size_t len_bytes)
{
	enum { LINES = 20 };
	struct fuzz_input in = {data, len_bytes};
	char unknown[COLL_TEXT_MAX], path[64], *text = fuzz_text(&in), *save = NULL;
	coll_config cfg = COLL_CONFIG_INIT;
	const char *given[2 * LINES + 1] = {0};
	const int fd = fuzz_file(data, len_bytes, path);
	struct coll_settings s;
	struct coll_error_box err;
	int n = 0;

	coll_error_clear(&err);
	for (char *line = strtok_r(text, "\n", &save); line && n < LINES; line = strtok_r(NULL, "\n", &save))
		given[n++] = line;
	cfg.settings = given;
	if (coll_settings_load(&s, &cfg, unknown, &err) == COLL_OK) {
		struct coll_agreed agreed;
		uint16_t first, last;
		int at;

		coll_settings_agreed(&s, &agreed);
		FUZZ_HOLDS(coll_settings_differing(&agreed, &agreed, &at) == NULL);
		coll_port_range(&s, &first, &last, &err);
	}
	setenv("COLL_CONFIG_FILE", path, 1);
	coll_settings_load(&s, NULL, unknown, &err);
	unsetenv("COLL_CONFIG_FILE");
	close(fd);
	free(text);
}

static void use_layout(const char *text)
{
	struct coll_layout *layout = NULL;
	int size = 0;

	if (strlen(text) < 40 && plan_layout_parse(text, "block", NULL, &layout, &size))
		FUZZ_HOLDS(size > 0);
	coll_layout_destroy(&layout);
}

/* The first byte says which of them. */
void fuzz_lists(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	const uint8_t which = fuzz_byte(&in);
	struct coll_link_rate rates[COLL_LINK_RATES_MAX];
	struct coll_device_choice choice = {0};
	struct coll_address address;
	struct coll_error_box err;
	struct hook_rules rules;
	char *text = fuzz_text(&in), why[100];
	unsigned levels, sockets;
	uint32_t mbps;
	int value, n;

	coll_error_clear(&err);
	switch (which % 8) {
	case 0:
		n = coll_link_rates_parse(text, rates, why, sizeof(why));
		FUZZ_HOLDS(n <= COLL_LINK_RATES_MAX);
		for (int i = 0; i < n; i++)
			FUZZ_HOLDS(memchr(rates[i].name, 0, sizeof(rates[i].name)) &&
			           rates[i].mbps <= COLL_LINK_RATE_MAX);
		break;
	case 1: coll_link_rate_parse_one(text, &mbps, why, sizeof(why)); break;
	case 2: coll_hook_parse(text, 0, "tcp", &rules, &err); break;
	case 3: coll_search_parse_levels(text, &levels, why, sizeof(why)); break;
	case 4: coll_number_parse(text, -5, 100000, &value); break;
	case 5: coll_address_numeric(&address, text, 7); break;
	case 6:
		coll_device_parse(text, &choice, &err);
		coll_tcp_rails_parse(text, &sockets);
		coll_dump_signal_parse(text);
		break;
	default: use_layout(text); break;
	}
	free(text);
}
