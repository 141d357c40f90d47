/*
 * coll-info: what this library sees and would do here.
 *
 * Alone it shows version, topology, transports and every setting with the place
 * its value came from. Under a launcher it creates the communicator and shows
 * ranks, hosts, locality, the transport of each pair and the choice of algorithm
 * by size. Only rank 0 prints the common part. With --pid it asks a running job
 * instead: what is each rank of it on this host doing, and who holds it up.
 */
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/ib_ports.h"
#include "base/log.h"
#include "base/messages.h"
#include "base/number.h"
#include "coll/coll.h"
#include "comm/survey.h"
#include "core/device_facts.h"
#include "core/host_rates.h"
#include "device/device.h"
#include "hang.h"
#include "reduce/reduce.h"
#include "slow.h"
#include "tools/common/flag_guess.h"
#include "tools/common/host.h"
#include "tools/common/last_flush.h"
#include "tools/common/ways_table.h"
#include "topology/nic.h"
#include "topology/rates.h"
#include "transports/common/dummy.h"
#include "transports/registry.h"

static const char usage[] = "usage: coll-info [--brief] [--settings] [--choices]\n"
                            "       coll-info --pid PID [--slow] [--json] [--watch]\n"
                            "       coll-info --explain ID|all\n"
                            "       coll-info --ways\n"
                            "  --brief     ranks, hosts and topology only\n"
                            "  --settings  settings only, with help and where each value came from\n"
                            "  --choices   algorithms by size only\n"
                            "  --pid PID   what the ranks below that process (a rank, or its launcher) are doing,\n"
                            "              and which rank holds the job up\n"
                            "  --slow      with --pid: how long each rank has waited lately, and which rank or link\n"
                            "              is far behind the others\n"
                            "  --json      with --pid: the same as JSON\n"
                            "  --watch     with --pid: again every 2 s until the job ends\n"
                            "  --explain ID  what the message that ends in [COLL-ID] means, and what to do\n"
                            "  --ways      the table by which the way of a call is chosen\n"
                            "  --version   version and commit\n"
                            "Run it under the launcher of your job to see the job: collrun -n 4 coll-info\n";

/* A secret is not for logs. */
static const char *shown(const struct coll_settings *s, int i)
{
	if (i == COLL_SETTING_job_key && s->text[i][0])
		return "(set)";
	return s->text[i][0] ? s->text[i] : "\"\"";
}

static void print_settings(const struct coll_settings *s)
{
	printf("settings (agreed: must be equal on all ranks)\n");
	for (int i = 0; i < COLL_SETTING_COUNT; i++)
		printf("  %-24s = %-10s [%s%s] %s\n", coll_setting_rows[i].name, shown(s, i), s->source[i],
		       coll_setting_rows[i].agreed ? ", agreed" : "", coll_setting_rows[i].help);
}

static void print_ranks(const coll_comm *comm)
{
	const struct coll_identity *id = &comm->ctx->identity;

	printf("launcher: %s, secret: %s\n", id->launcher,
	       id->secret ? id->secret
	       : id->open ? "none, as COLL_INSECURE allows"
	                  : "none needed");
	printf("ranks: %d\n", coll_comm_size(comm));
	for (int r = 0; r < coll_comm_size(comm); r++)
		printf("  rank %d on %s, from rank 0 by %s\n", r, coll_comm_host(comm, r),
		       coll_comm_transport(comm, r));
}

static void print_layout(const coll_comm *comm)
{
	char text[2048];

	coll_survey_describe(comm, text, sizeof(text));
	printf("%s", text);
}

static void print_choices(coll_comm *comm)
{
	static const char *const kinds[] = {"all_reduce",     "reduce",         "broadcast", "all_gather",
	                                    "reduce_scatter", "all_to_all",     "gather",    "scatter",
	                                    "scan",           "exclusive_scan", "barrier"};
	char text[1600];

	coll_host_rates_text(comm, text, sizeof(text));
	printf("choices (f32; a forced one with COLL_ALGO)%s%s\n", text[0] ? "; " : "", text);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (size_t bytes = 8; bytes <= (size_t)64 << 20; bytes *= 64) {
			if (coll_comm_explain(comm, kinds[k], bytes / 4, COLL_F32, text, sizeof(text)) == COLL_OK)
				printf("  %10zu B  %s\n", bytes, text);
			else
				printf("  %10zu B  %s\n", bytes, coll_last_error(comm)->message);
			if (strcmp(kinds[k], "barrier") == 0)
				break;
		}
}

static void print_here(void)
{
	char text[2048];

	printf("libcoll %s, reduction kernels %s\n", coll_version_text(), coll_reduce_isa_name(coll_reduce_best_isa()));
	coll_topology_draw(text, sizeof(text));
	printf("%s", text);
	printf("transports built in:");
	for (int i = 0; i < COLL_TRANSPORTS; i++)
		printf(" %s", coll_transports[i]->name);
	printf("\n");
}

static const char *setting(void *ctx, const char *name)
{
	const struct coll_settings *s = ctx;

	for (int i = 0; i < COLL_SETTING_COUNT; i++)
		if (strcmp(coll_setting_rows[i].name, name) == 0)
			return s->text[i];
	return "";
}

static void say(void *ctx, int level, const char *format, ...)
{
	va_list ap;

	(void)ctx;
	if (level > COLL_LOG_INFO)
		return;
	va_start(ap, format);
	printf("  ");
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
}

static void no_link(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	(void)ctx, (void)peer, (void)why, (void)cause;
}

static uint32_t nic_mbps(void *ctx, const char *nic)
{
	(void)ctx;
	return coll_rates_of_nic(COLL_IB_SYS, nic);
}

static void print_rdma_port(const struct coll_ib_port *p)
{
	struct coll_ib_gid gid;
	const int at = coll_topology_nic_node(COLL_IB_SYS, p->device);
	char node[16] = "unknown";

	if (at >= 0)
		snprintf(node, sizeof(node), "%d", at);
	printf("  %s port %u: %s, %s, %s, NUMA node %s\n", p->device, p->number, p->state, p->layer, p->rate, node);
	for (int i = 0; i < 256; i++)
		if (coll_ib_port_gid(COLL_IB_SYS, p, i, &gid))
			printf("    GID %d: %s%s%s%s%s\n", i, gid.text, gid.type[0] ? ", " : "", gid.type,
			       gid.interface[0] ? " on " : "", gid.interface);
}

/* The devices, then what the transport itself says of them when it is opened. */
static void print_rdma(struct coll_settings *s)
{
	struct coll_ib_port ports[COLL_IB_PORTS_MAX];
	const int n = coll_ib_ports_list(COLL_IB_SYS, ports, COLL_IB_PORTS_MAX);
	const struct coll_transport_env env = {.size = sizeof(env),
	                                       .self = {{1, 1}},
	                                       .host_id = "",
	                                       .wake_fd = -1,
	                                       .ctx = s,
	                                       .setting = setting,
	                                       .log = say,
	                                       .link_down = no_link,
	                                       .nic_mbps = nic_mbps};
	struct coll_transport t;
	void *inst;

	printf("rdma devices: %s\n", n > 0 ? "" : "none");
	for (int i = 0; i < n; i++)
		print_rdma_port(&ports[i]);
	coll_transport_complete(&coll_transport_rdma, &t);
	if (n > 0 && t.open(&env, &inst) == COLL_OK) {
		t.close(inst);
		t.fini(inst);
	}
}

/* The driver is loaded to be asked, whatever COLL_DEVICE says. */
static void print_devices(const struct coll_settings *s, const coll_comm *comm)
{
	const struct coll_device *d = comm->ctx->device;
	struct coll_text text = {0};
	char mapped[160];

	coll_device_describe(s->cuda_library, &text);
	printf("%s", text.p ? text.p : "");
	coll_text_free(&text);
	if (d)
		printf("device of rank 0: %s, %s%s%s\n", d->name, d->about, d->lacks[0] ? ", without " : "", d->lacks);
	else
		printf("device of rank 0: none (COLL_DEVICE=%s)\n", s->device);
	if (d)
		printf("device memory of the ranks: %s%s\n",
		       coll_device_facts_describe(comm, mapped, sizeof(mapped)) ? "" : "staged: ", mapped);
}

/* What is asked of a running job. */
struct question {
	int pid; /* 0: nothing */
	bool slow, json, watch;
};

static void add_lines(const char *lines, struct coll_text *json)
{
	for (const char *p = lines, *comma = ""; *p; comma = ",") {
		char line[1024];
		const size_t n = strcspn(p, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)n, p);
		coll_text_add(json, "%s\n", comma);
		coll_text_add_json(json, line);
		p += n + (p[n] != 0);
	}
}

/* 0: no rank is held up; 1: one is. */
static int explain_hang(struct dump_list *list, const struct door_silent *silent, bool json, struct coll_text *out)
{
	struct coll_text text = {0};
	bool held;

	door_ask_job(list);
	held = hang_explain(list, silent, &text);
	if (json) {
		coll_text_add(out, "{\"held_up\":%s,\"lines\":[", held ? "true" : "false");
		add_lines(text.p ? text.p : "", out);
		coll_text_add(out, "\n]}\n");
	} else {
		coll_text_add(out, "%s", text.p ? text.p : "");
	}
	out->failed |= text.failed;
	coll_text_free(&text);
	return held;
}

/* 0: nobody is slow; 1: somebody, or a link; 2: none answered. */
static int explain_slow(const struct dump_list *list, bool json, struct coll_text *out)
{
	struct dump_list told = {0};
	int status = 2;

	if (door_ask_slow(list, &told))
		status = json ? slow_json(&told, out) : slow_explain(&told, out);
	dump_list_free(&told);
	return status;
}

static int explain_job(const struct question *q)
{
	struct dump_list list = {0};
	struct door_silent silent;
	struct coll_text text = {0};
	const int answered = door_ask_family(q->pid, "state", &list, &silent);
	char why[300];
	int status = 2;

	if (answered == 0 && (silent.n == 0 || q->slow)) {
		door_why_none(q->pid, why, sizeof(why));
		fprintf(stderr, "coll-info: %s\n", why);
	} else {
		status = q->slow ? explain_slow(&list, q->json, &text) : explain_hang(&list, &silent, q->json, &text);
		if (answered == 0 && status == 0)
			status = 2;
		if (q->watch && isatty(STDOUT_FILENO))
			printf("\033[H\033[J");
		if (text.failed || fputs(text.p ? text.p : "", stdout) == EOF || fflush(stdout) == EOF)
			status = 2;
	}
	coll_text_free(&text);
	dump_list_free(&list);
	return status;
}

/* Again and again until no rank answers: the last status of those that did. */
static int watch_job(const struct question *q)
{
	int last = 2, status;

	while ((status = explain_job(q)) != 2) {
		last = status;
		sleep(2);
	}
	return last;
}

static void print_message(const struct coll_message_row *m)
{
	printf("COLL-%04d  %s\n           %s\n", m->id, m->meaning, m->action);
}

/* "3101", "COLL-3101", "[COLL-3101]" or "all". */
static int explain_message(const char *name)
{
	const char *digits = name + strcspn(name, "0123456789");
	const struct coll_message_row *m = coll_message_find(atoi(digits));

	if (strcmp(name, "all") == 0) {
		for (int i = 0; i < coll_message_count; i++)
			print_message(&coll_message_rows[i]);
	} else if (m) {
		print_message(m);
	} else {
		fprintf(stderr, "coll-info: no message of this version has the id %s (--explain all lists them)\n",
		        name);
		return 1;
	}
	return 0;
}

struct wanted {
	bool brief, settings, choices;
	struct question job;
};

/* -1: go on; else the exit status: the command line was wrong, or all it asked for is done. */
static int read_options(int argc, char **argv, struct wanted *w)
{
	static const struct option options[] = {
	        {"brief", no_argument, NULL, 'b'},   {"settings", no_argument, NULL, 's'},
	        {"choices", no_argument, NULL, 'c'}, {"pid", required_argument, NULL, 'p'},
	        {"help", no_argument, NULL, 'h'},    {"explain", required_argument, NULL, 'e'},
	        {"ways", no_argument, NULL, 'w'},    {"version", no_argument, NULL, 'V'},
	        {"slow", no_argument, NULL, 'S'},    {"json", no_argument, NULL, 'j'},
	        {"watch", no_argument, NULL, 'W'},   {0}};
	struct question *job = &w->job;
	int o;

	last_flush_check("coll-info");
	opterr = 0;
	while ((o = getopt_long(argc, argv, ":V", options, NULL)) != -1) {
		w->brief |= o == 'b';
		w->settings |= o == 's';
		w->choices |= o == 'c';
		job->slow |= o == 'S';
		job->json |= o == 'j';
		job->watch |= o == 'W';
		if (o == 'p' && coll_number_parse(optarg, 1, INT_MAX, &job->pid))
			continue;
		if (o == 'p')
			fprintf(stderr, "coll-info: --pid %s: expected the number of a process\n", optarg);
		if (o == 'e')
			return explain_message(optarg);
		if (o == 'w') {
			coll_ways_table(stdout);
			return 0;
		}
		if (o == 'V') {
			printf("coll-info %s\n", coll_version_text());
			return 0;
		}
		if (o == '?' || o == ':')
			flag_refused("coll-info", usage, o, argv);
		if (o == 'h' || o == '?' || o == ':' || o == 'p') {
			fputs(usage, o == 'h' ? stdout : stderr);
			return o == 'h' ? 0 : 2;
		}
	}
	if (optind == argc && job->pid)
		return job->watch ? watch_job(job) : explain_job(job);
	if (optind == argc && (job->slow || job->json || job->watch)) {
		fprintf(stderr, "coll-info: --slow, --json and --watch need --pid\n");
		return 2;
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "coll-info: unexpected argument %s\n%s", argv[optind], usage);
	return 2;
}

static int show(struct coll_settings *s, const struct wanted *w)
{
	coll_comm *comm = NULL;

	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "coll-info: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	if (coll_comm_rank(comm) == 0) {
		if (!w->choices) {
			print_here();
			print_rdma(s);
			print_devices(s, comm);
			print_ranks(comm);
			print_layout(comm);
		}
		if (coll_comm_size(comm) == 1)
			printf("One rank has nobody to send to: no transports, choices and prices of calls. To see "
			       "those of "
			       "a job:\n  collrun -n 4 coll-info\n");
		else if (!w->brief)
			print_choices(comm);
		if (!w->brief && !w->choices)
			print_settings(s);
		fflush(stdout);
	}
	coll_comm_destroy(&comm);
	return 0;
}

int main(int argc, char **argv)
{
	struct wanted wanted = {0};
	struct coll_error_box err;
	struct coll_settings *s;
	int status = read_options(argc, argv, &wanted);

	if (status >= 0)
		return status;
	s = malloc(sizeof(*s));
	coll_error_clear(&err);
	if (!s || coll_settings_load(s, NULL, NULL, &err) != COLL_OK) {
		const struct coll_message_text m = coll_message_split(COLL_ERR_CONFIG, err.message);

		fprintf(stderr, "coll-info: %s%s\n", m.text, m.tag);
		status = 1;
	} else if (wanted.settings) {
		print_settings(s);
		status = 0;
	} else {
		status = show(s, &wanted);
	}
	free(s);
	return status;
}
