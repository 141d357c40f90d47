/*
 * Sources of the launch secret: their order, what is refused and how it is said, which jobs need one, and that the key
 * is gone from the environment that the kernel shows. Each case runs in a process of its own, since keys are kept.
 */
#define PLAIN_OWN_MAIN
#include "tests/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/probe.h"
#include "bootstrap/secret.h"

#define DIGITS "00112233445566778899aabbccddeeff"
#define BEYOND "COLL_RANK=0 COLL_SIZE=2 COLL_ROOT=h:1"

static char folder[64];

static char *in_folder(const char *name)
{
	static char paths[8][300];
	static int next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static char *file(const char *name, const char *text, size_t len_bytes, mode_t mode)
{
	char *path = in_folder(name);
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, len_bytes) != (ssize_t)len_bytes || fchmod(fd, mode) < 0)
		abort();
	close(fd);
	return path;
}

static void set(const char *words)
{
	char copy[400], *save, *word;

	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		word[strcspn(word, "=")] = 0;
		setenv(word, word + strlen(word) + 1, 1);
	}
}

static struct coll_identity id;
static struct coll_error_box err;

static coll_status look_with(const coll_config *cfg)
{
	static struct coll_settings s;
	coll_status st;

	coll_error_clear(&err);
	st = coll_settings_load(&s, cfg, NULL, &err);
	return st == COLL_OK ? coll_bootstrap_identify(cfg, &s, &id, &err) : st;
}

static coll_status look(const char *words)
{
	set(words);
	return look_with(NULL);
}

static bool from(const char *source)
{
	return source ? id.secret && strcmp(id.secret, source) == 0 : !id.secret;
}

static bool refused(const char *text)
{
	return err.status == COLL_ERR_CONFIG && strstr(err.message, text);
}

/* ---- Cases ---- */

static const char sixteen[] = "sixteen bytes...";

static void the_first_source_counts(void)
{
	int p[2];

	if (pipe(p) < 0 || write(p[1], sixteen, 16) != 16)
		abort();
	close(p[1]);
	mkdir(in_folder("coll"), 0700);
	file("coll/key", "another sixteen bytes", 21, 0600);
	CHECK(look(BEYOND) == COLL_ERR_CONFIG && refused("[COLL-1119]"), "%s", err.message);
	setenv("XDG_CONFIG_HOME", folder, 1);
	CHECK(look("") == COLL_OK && from("~/.config/coll/key"), "%s", err.message);
	setenv("COLL_KEY_FILE", file("named", sixteen, 16, 0400), 1);
	CHECK(look("") == COLL_OK && from("COLL_KEY_FILE"), "%s", err.message);
	p[1] = dup2(p[0], 60);
	close(p[0]);
	CHECK(look("COLL_KEY_FD=60") == COLL_OK && from("COLL_KEY_FD"), "%s", err.message);
	CHECK(look("COLL_JOB_KEY=" DIGITS) == COLL_OK && from("COLL_JOB_KEY"), "%s", err.message);
	CHECK(id.job_key[0] == 0x0011223344556677u && id.job_key[1] == 0x8899aabbccddeeffu);
}

static void the_file_below_home(void)
{
	mkdir(in_folder(".config"), 0700);
	mkdir(in_folder(".config/coll"), 0700);
	file(".config/coll/key", sixteen, 16, 0600);
	setenv("HOME", folder, 1);
	CHECK(look(BEYOND) == COLL_OK && from("~/.config/coll/key"), "%s", err.message);
	/* A job that needs none does not fail for it. */
	chmod(in_folder(".config/coll/key"), 0644);
	CHECK(look("") == COLL_ERR_CONFIG && refused("chmod 600"), "%s", err.message);
	CHECK(look("COLL_ROOT=127.0.0.1:1") == COLL_OK && from(NULL), "%s", err.message);
	CHECK(look("COLL_ROOT=unix:x") == COLL_OK && from(NULL), "%s", err.message);
}

static void who_needs_none(void)
{
	static const char *const roots[] = {"COLL_ROOT=127.0.0.1:1", "COLL_ROOT=127.9.9.9:1", "COLL_ROOT=[::1]:1",
	                                    "COLL_ROOT=localhost:1", "COLL_ROOT=unix:abc"};
	coll_config cfg = COLL_CONFIG_INIT;

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		set("COLL_RANK=0 COLL_SIZE=2");
		CHECK(look(roots[i]) == COLL_OK && from(NULL) && !id.open, "%s: %s", roots[i], err.message);
	}
	CHECK(look("COLL_ROOT=h:1") == COLL_ERR_CONFIG && refused("COLL_INSECURE=1"), "%s", err.message);
	CHECK(look("COLL_SIZE=1") == COLL_OK, "%s", err.message);
	CHECK(look("COLL_SIZE=2 COLL_INSECURE=1") == COLL_OK && from(NULL) && id.open, "%s", err.message);
	CHECK(look("COLL_INSECURE=0") == COLL_ERR_CONFIG);
	cfg.insecure = 1;
	CHECK(look_with(&cfg) == COLL_OK && id.open, "%s", err.message);
}

static void open_jobs_are_warned_of_once(void)
{
	CHECK(look("COLL_RANK=1 COLL_SIZE=2 COLL_ROOT=far:1 COLL_INSECURE=1") == COLL_OK);
	CHECK(!coll_secret_warns(&id), "rank 1 says it");
	CHECK(look("COLL_RANK=0 COLL_ROOT=127.0.0.1:1") == COLL_OK);
	CHECK(!coll_secret_warns(&id), "on one host");
	CHECK(look("COLL_ROOT=far:1") == COLL_OK);
	CHECK(coll_secret_warns(&id));
	CHECK(!coll_secret_warns(&id), "twice");
}

static void bad_files_are_named(void)
{
	static char many[5000] = "x";

	set(BEYOND);
	setenv("COLL_KEY_FILE", in_folder("nowhere"), 1);
	CHECK(look("") == COLL_ERR_CONFIG && refused("nowhere: No such file"), "%s", err.message);
	setenv("COLL_KEY_FILE", folder, 1);
	CHECK(look("") == COLL_ERR_CONFIG && refused("no regular file"), "%s", err.message);
	for (int bit = 0; bit < 6; bit++) {
		setenv("COLL_KEY_FILE", file("open", sixteen, 16, 0600 | (mode_t)1 << bit), 1);
		CHECK(look("") == COLL_ERR_CONFIG ? refused("chmod 600") : 1 << bit == 040 && geteuid() == 0,
		      "bit %d: %s", bit, err.message);
	}
	setenv("COLL_KEY_FILE", file("short", sixteen, 15, 0600), 1);
	CHECK(look("") == COLL_ERR_CONFIG && refused("has 15 bytes"), "%s", err.message);
	setenv("COLL_KEY_FILE", file("long", many, 4097, 0600), 1);
	CHECK(look("") == COLL_ERR_CONFIG && refused("more than 4096"), "%s", err.message);
	setenv("COLL_KEY_FILE", file("most", many, 4096, 0600), 1);
	CHECK(look("") == COLL_OK, "%s", err.message);
	CHECK(look("COLL_KEY_FD=77") == COLL_ERR_CONFIG && refused("COLL_KEY_FD=77: cannot be read"), "%s",
	      err.message);
	CHECK(look("COLL_KEY_FD=1") == COLL_ERR_CONFIG && refused("3 or more"), "%s", err.message);
	CHECK(look("COLL_KEY_FD=-1 COLL_JOB_KEY=" DIGITS "0") == COLL_ERR_CONFIG && refused("32 hexa"), "%s",
	      err.message);
	CHECK(!strstr(err.message, "0011"), "%s", err.message);
	if (geteuid() == 0 && chown(file("theirs", sixteen, 16, 0600), 65534, 0) == 0) {
		setenv("COLL_KEY_FILE", in_folder("theirs"), 1);
		CHECK(look("COLL_JOB_KEY=") == COLL_ERR_CONFIG && refused("belongs to user 65534"), "%s", err.message);
	}
}

/* A Secret of Kubernetes is root's, and a user without privileges reads it by its group. */
static void the_group_may_read_a_file_of_root(void)
{
	const uid_t user = 65533;
	const char *path = file("mounted", sixteen, 16, 0440);

	if (geteuid() != 0 || chown(folder, user, 0) < 0 || seteuid(user) < 0)
		return;
	setenv("COLL_KEY_FILE", path, 1);
	CHECK(look(BEYOND) == COLL_OK && from("COLL_KEY_FILE"), "%s", err.message);
	if (seteuid(0) < 0 || chmod(path, 0460) < 0 || seteuid(user) < 0)
		abort();
	CHECK(look("") == COLL_ERR_CONFIG && refused("mode 0460"), "the group may write: %s", err.message);
	if (seteuid(0) < 0 || chmod(path, 0440) < 0 || chown(path, user, 0) < 0 || seteuid(user) < 0)
		abort();
	CHECK(look("") == COLL_ERR_CONFIG && refused("mode 0440"), "not of root: %s", err.message);
	if (seteuid(0) < 0)
		abort();
}

static void jobs_that_share_a_file_have_keys_of_their_own(void)
{
	struct coll_identity first;

	setenv("COLL_KEY_FILE", file("shared", sixteen, 16, 0600), 1);
	CHECK(look(BEYOND) == COLL_OK, "%s", err.message);
	first = id;
	/* One job: the name of the host may differ, and an editor adds a newline. */
	setenv("COLL_KEY_FILE", file("copied", "sixteen bytes...\n", 17, 0600), 1);
	CHECK(look("COLL_RANK=1 COLL_ROOT=alias:1") == COLL_OK);
	CHECK(memcmp(first.job_key, id.job_key, sizeof(id.job_key)) == 0);
	CHECK(look("COLL_ROOT=h:2") == COLL_OK && memcmp(first.job_key, id.job_key, sizeof(id.job_key)) != 0);
	setenv("COLL_KEY_FILE", file("other", "sixteen bytes..;", 16, 0600), 1);
	CHECK(look("COLL_ROOT=h:1") == COLL_OK && memcmp(first.job_key, id.job_key, sizeof(id.job_key)) != 0);
	CHECK(look("COLL_ROOT=h") == COLL_ERR_CONFIG && refused("names no port"), "%s", err.message);
}

static void a_descriptor_is_read_once(void)
{
	const int fd = open(file("digits", DIGITS "\n", 33, 0644), O_RDONLY);
	struct coll_identity first;

	dup2(fd, 50);
	close(fd);
	CHECK(look(BEYOND " COLL_KEY_FD=50") == COLL_OK && id.job_key[0] == 0x0011223344556677u, "%s", err.message);
	CHECK(fcntl(50, F_GETFD) < 0 && errno == EBADF, "it is still open");
	first = id;
	CHECK(look("") == COLL_OK && memcmp(first.job_key, id.job_key, sizeof(id.job_key)) == 0, "%s", err.message);
}

static void public_words_are_no_secret(void)
{
	struct coll_identity first;

	CHECK(look("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=7") == COLL_OK);
	CHECK(from(NULL) && (id.job_key[0] || id.job_key[1]), "they keep jobs apart");
	first = id;
	CHECK(look("LOCAL_WORLD_SIZE=1") == COLL_ERR_CONFIG && refused("meet at m"), "%s", err.message);
	CHECK(look("COLL_JOB_KEY=" DIGITS) == COLL_OK && from("COLL_JOB_KEY") && id.root_ports, "%s", err.message);
	/* Somebody may have taken a port that is named: there are others behind it, which only the ranks know. */
	CHECK(look("COLL_ROOT=h:4711 COLL_JOB_KEY=" DIGITS) == COLL_OK && id.root_ports && id.root_port == 4711 &&
	              id.port_seed,
	      "%s", err.message);
	CHECK(memcmp(first.job_key, id.job_key, sizeof(id.job_key)) != 0);
}

/* ---- What the kernel shows ---- */

static bool shown(const char *digits)
{
	static char text[1 << 16];
	const int fd = open("/proc/self/environ", O_RDONLY);
	const ssize_t n = read(fd, text, sizeof(text));

	close(fd);
	return n > 0 && memmem(text, (size_t)n, digits, strlen(digits));
}

/* In the program that this one runs: its environment is as the kernel made it. */
static void the_key_leaves_the_environment(void)
{
	static const char *const given[] = {"COLL_JOB_KEY=20112233445566778899aabbccddeeff", NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	CHECK(shown(DIGITS), "the program was not started with the key");
	CHECK(look(BEYOND) == COLL_OK && from("COLL_JOB_KEY"), "%s", err.message);
	CHECK(!shown("0011223344556677") && !shown("8899aabbccddeeff"), "the kernel shows it");
	CHECK(getenv("COLL_JOB_KEY") && !*getenv("COLL_JOB_KEY"));
	CHECK(shown("COLL_ROOT=h:1") || !getenv("COLL_ROOT"), "more than the key is gone");
	/* It is kept, and a fork has it too; a new one replaces it. */
	CHECK(look("") == COLL_OK && from("COLL_JOB_KEY") && id.job_key[0] == 0x0011223344556677u, "%s", err.message);
	CHECK(look("COLL_JOB_KEY=10112233445566778899aabbccddeeff") == COLL_OK && id.job_key[0] == 0x1011223344556677u);
	CHECK(!*getenv("COLL_JOB_KEY"), "a copy of the program's own");
	/* The caller gives another one for this creation. */
	cfg.settings = given;
	set("COLL_JOB_KEY=" DIGITS);
	CHECK(look_with(&cfg) == COLL_OK && id.job_key[0] == 0x2011223344556677u && !*getenv("COLL_JOB_KEY"));
	CHECK(look("") == COLL_OK && id.job_key[0] == 0x0011223344556677u);
}

static void runs_with_a_key(void)
{
	char *const argv[] = {"secret_test", "shown", NULL};
	static char key[] = "COLL_JOB_KEY=" DIGITS;
	char *const env[] = {"BEFORE=1", key, "COLL_ROOT=h:1", "COLL_RANK=0", "COLL_SIZE=2", "LAST=1", NULL};

	execve("/proc/self/exe", argv, env);
	CHECK(false, "exec");
}

static void settings_forget_it(void)
{
	static struct coll_settings s;

	set(BEYOND " COLL_JOB_KEY=" DIGITS);
	CHECK(coll_settings_load(&s, NULL, NULL, &err) == COLL_OK);
	CHECK(memmem(&s, sizeof(s), "8899aabbccddeeff", 16), "it was never there");
	coll_secret_forget(&s);
	CHECK(!memmem(&s, sizeof(s), "8899aabbccddeeff", 16) && !memmem(&s, sizeof(s), "0011223344556677", 16));
}

/* ---- ---- */

#define CASE(f)       \
	{             \
#f, f \
	}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {CASE(the_first_source_counts),
             CASE(the_file_below_home),
             CASE(who_needs_none),
             CASE(open_jobs_are_warned_of_once),
             CASE(bad_files_are_named),
             CASE(the_group_may_read_a_file_of_root),
             CASE(jobs_that_share_a_file_have_keys_of_their_own),
             CASE(a_descriptor_is_read_once),
             CASE(public_words_are_no_secret),
             CASE(runs_with_a_key),
             CASE(settings_forget_it)};

static int at;

static void in_a_process_of_its_own(void)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		char command[100];

		clearenv();
		strcpy(folder, "/tmp/coll-secret-XXXXXX");
		if (!mkdtemp(folder))
			abort();
		atomic_store(&plain_failures, 0);
		cases[at].run();
		snprintf(command, sizeof(command), "rm -r %s", folder);
		if (system(command) != 0)
			abort();
		fflush(stdout);
		_exit(atomic_load(&plain_failures) != 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "case %d: status %x", at, status);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "shown") == 0) {
		the_key_leaves_the_environment();
		fflush(stdout);
		_exit(atomic_load(&plain_failures) != 0);
	}
	for (at = 0; at < (int)(sizeof(cases) / sizeof(cases[0])); at++)
		plain_run("", cases[at].name, in_a_process_of_its_own);
	return plain_summary();
}
