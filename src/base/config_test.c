/*
 * Settings: where a value comes from, what a file may look like, what is refused.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "tests/plain.h"

static struct coll_settings settings;
static struct coll_error_box box;

/* From a file with this text (NULL: without a file), the environment, and the caller. */
static coll_status load(const char *text, const char *const *caller)
{
	coll_config cfg = COLL_CONFIG_INIT;
	char path[] = "/tmp/coll-config-test-XXXXXX";
	coll_status st;
	int fd = -1;

	cfg.settings = caller;
	coll_error_clear(&box);
	if (text) {
		fd = mkstemp(path);
		CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
		setenv("COLL_CONFIG_FILE", path, 1);
	}
	st = coll_settings_load(&settings, &cfg, NULL, &box);
	unsetenv("COLL_CONFIG_FILE");
	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	return st;
}

static const char *source_of(const char *name)
{
	for (int i = 0; i < COLL_SETTING_COUNT; i++)
		if (strcmp(coll_setting_rows[i].name, name) == 0)
			return settings.source[i];
	return "";
}

TEST(config, the_last_to_speak_wins)
{
	const char *const caller[] = {"COLL_SLOTS=5", NULL};

	unsetenv("COLL_SPIN_US");
	CHECK(load(NULL, NULL) == COLL_OK);
	CHECK(settings.spin_us == 50 && strcmp(source_of("COLL_SPIN_US"), "default") == 0);
	CHECK(load("COLL_SPIN_US=7\nCOLL_SLOTS=3\n", NULL) == COLL_OK);
	CHECK(settings.spin_us == 7 && strncmp(source_of("COLL_SPIN_US"), "file /tmp", 9) == 0);
	setenv("COLL_SPIN_US", "8", 1);
	CHECK(load("COLL_SPIN_US=7\nCOLL_SLOTS=3\n", caller) == COLL_OK);
	CHECK(settings.spin_us == 8 && strcmp(source_of("COLL_SPIN_US"), "environment") == 0);
	CHECK(settings.slots == 5 && strcmp(source_of("COLL_SLOTS"), "caller") == 0);
	unsetenv("COLL_SPIN_US");
}

TEST(config, a_file_as_people_write_them)
{
	char text[2000] = "";
	char comment[600];

	/* Longer than any line that a setting needs. */
	memset(comment, 'x', sizeof(comment) - 1);
	comment[sizeof(comment) - 1] = 0;
	snprintf(text, sizeof(text),
	         "# %s COLL_SLOTS=1000\n\n   \r\n  COLL_DEBUG = Info  \r\n\tCOLL_SLOTS\t=\t4\nCOLL_ALGO=\n", comment);
	CHECK(load(text, NULL) == COLL_OK, "%s", box.message);
	CHECK(strcmp(settings.debug, "info") == 0, "'%s'", settings.debug);
	CHECK(settings.slots == 4, "%d", settings.slots);
	CHECK(settings.algo[0] == 0);
	CHECK(load("COLL_SLOTS=6", NULL) == COLL_OK && settings.slots == 6, "no newline at the end");
}

TEST(config, what_is_wrong_is_named_with_its_place)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
	        {"\nCOLL_NO_SUCH=1\n", "COLL_NO_SUCH=1"},
	        {"\nCOLL_SLOTS=many\n", "COLL_SLOTS=many"},
	        {"\nCOLL_SLOTS\n", "COLL_SLOTS"},
	        {"\nCOLL_SLOTS=99999999999\n", "expected a whole number"},
	        {"\nCOLL_INTRA=2\n", "expected 0 or 1"},
	        {"\nCOLL_MEMORY_BUDGET=12Q\n", "expected a size"},
	        {"\nCOLL_SLOT_BYTES=-1\n", "expected a size"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(load(wrong[i].text, NULL) == COLL_ERR_CONFIG, "%s", wrong[i].text);
		CHECK(strstr(box.message, wrong[i].says) && strstr(box.message, ":2)"), "%s", box.message);
	}
}

TEST(config, a_negative_size_is_none)
{
	const char *const caller[] = {"COLL_SLOT_BYTES= -1", NULL};

	CHECK(load(NULL, caller) == COLL_ERR_CONFIG);
	CHECK(strstr(box.message, "expected a size"), "%s", box.message);
}

TEST(config, a_file_that_cannot_be_read_is_an_error)
{
	coll_error_clear(&box);
	setenv("COLL_CONFIG_FILE", "/nowhere/at/all", 1);
	CHECK(coll_settings_load(&settings, NULL, NULL, &box) == COLL_ERR_CONFIG);
	CHECK(strstr(box.message, "/nowhere/at/all: No such file"), "%s", box.message);
	coll_error_clear(&box);
	setenv("COLL_CONFIG_FILE", "/tmp", 1);
	CHECK(coll_settings_load(&settings, NULL, NULL, &box) == COLL_ERR_CONFIG, "a directory");
	CHECK(strstr(box.message, "/tmp: Is a directory"), "%s", box.message);
	unsetenv("COLL_CONFIG_FILE");
}

TEST(config, unknown_variables_are_told_and_sizes_have_suffixes)
{
	const char *const caller[] = {"COLL_SLOT_BYTES=3k", "COLL_MEMORY_BUDGET=2G", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	char unknown[COLL_TEXT_MAX];

	cfg.settings = caller;
	coll_error_clear(&box);
	setenv("COLL_TIMEOUT_SM", "5", 1);
	CHECK(coll_settings_load(&settings, &cfg, unknown, &box) == COLL_OK);
	unsetenv("COLL_TIMEOUT_SM");
	CHECK(strcmp(unknown, "COLL_TIMEOUT_SM") == 0, "'%s'", unknown);
	setenv("COLL_TORCH_AS", "gloo", 1);
	CHECK(coll_settings_load(&settings, &cfg, unknown, &box) == COLL_OK);
	unsetenv("COLL_TORCH_AS");
	CHECK(!unknown[0], "'%s'", unknown);
	CHECK(settings.slot_bytes == 3072 && settings.memory_budget == (size_t)2 << 30);
}

static const char *differing(const char *const *a, const char *const *b, struct coll_agreed values[2], int *at)
{
	CHECK(load(NULL, a) == COLL_OK, "%s", box.message);
	coll_settings_agreed(&settings, &values[0]);
	CHECK(load(NULL, b) == COLL_OK, "%s", box.message);
	coll_settings_agreed(&settings, &values[1]);
	return coll_settings_differing(&values[0], &values[1], at);
}

TEST(config, what_is_written_differently_is_equal_if_its_value_is)
{
	const char *const a[] = {"COLL_INTRA_BYTES=64K", "COLL_VERIFY=on", "COLL_SLOTS=4", "COLL_TIMEOUT_MS=7", NULL};
	const char *const b[] = {"COLL_INTRA_BYTES=65536", "COLL_VERIFY=1", "COLL_SLOTS=04", NULL};
	const char *const c[] = {"COLL_INTRA_BYTES=65537", "COLL_VERIFY=1", "COLL_SLOTS=04", NULL};
	struct coll_agreed values[2];
	int at = -1;
	const char *which = differing(a, b, values, &at);

	CHECK(!which, "%s", which ? which : "");
	which = differing(a, c, values, &at);
	REQUIRE(which && strcmp(which, "COLL_INTRA_BYTES") == 0);
	CHECK(strcmp(values[0].value[at], "65536") == 0, "'%s'", values[0].value[at]);
	CHECK(strcmp(values[1].value[at], "65537") == 0, "'%s'", values[1].value[at]);
}

TEST(config, long_texts_differ_wherever_they_do)
{
	const char *const a[] = {"COLL_ALGO=all_reduce:ring,broadcast:binomial,all_gather:ring", NULL};
	const char *const b[] = {"COLL_ALGO=all_reduce:ring,broadcast:binomial,all_gather:pair", NULL};
	struct coll_agreed values[2];
	const char *which;
	int at = -1;

	CHECK(!differing(a, a, values, &at));
	which = differing(a, b, values, &at);
	REQUIRE(which && strcmp(which, "COLL_ALGO") == 0);
	CHECK(strncmp(values[0].value[at], "all_reduce:ring,", 16) == 0, "'%s'", values[0].value[at]);
	CHECK(strlen(values[0].value[at]) == COLL_AGREED_BYTES - 1, "'%s'", values[0].value[at]);
}

TEST(config, a_name_that_was_changed_is_an_error_that_says_the_new_one)
{
	const char *const caller[] = {"COLL_NATIVE_BYTES=4K", NULL};

	CHECK(load(NULL, caller) == COLL_ERR_CONFIG);
	CHECK(strstr(box.message, "now called COLL_INTRA_BYTES"), "%s", box.message);
	CHECK(load("COLL_NATIVE = 0\n", NULL) == COLL_ERR_CONFIG);
	CHECK(strstr(box.message, "now called COLL_INTRA"), "%s", box.message);
	setenv("COLL_NATIVE", "0", 1);
	CHECK(load(NULL, NULL) == COLL_ERR_CONFIG);
	CHECK(strstr(box.message, "environment"), "%s", box.message);
	unsetenv("COLL_NATIVE");
	CHECK(load(NULL, NULL) == COLL_OK);
}
