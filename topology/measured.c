/*
 * See measured.h.
 */
#include "topology/measured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/link_rates.h"
#include "base/text.h"

static const char head[] = "coll-tune 1";

char *coll_measured_print(const struct coll_measured *t)
{
	struct coll_text text = {0};

	coll_text_add(&text, "%s\nmeasured %s\nlibrary %s\ntransport %s\nhop_ns %u\n", head, t->measured, t->library,
	              t->transport, t->hop_ns);
	for (uint32_t h = 0; h < t->hosts; h++) {
		const struct coll_measured_host *host = &t->host[h];

		coll_text_add(&text, "host %s out %u in %u", host->name, host->out, host->in);
		if (host->site >= 0)
			coll_text_add(&text, " site %d", host->site);
		coll_text_add(&text, "\n");
	}
	for (uint32_t s = 0; s < t->sites; s++)
		coll_text_add(&text, "site %u uplink %u\n", s, t->uplink[s]);
	return text.p;
}

/* ---- Reading ---- */

struct reading {
	struct coll_measured *tune;
	bool begun;
	const char *wrong; /* NULL: nothing so far */
};

static bool is_rate(uint32_t mbps)
{
	return mbps > 0 && mbps <= COLL_LINK_RATE_MAX;
}

static const char *read_host(struct coll_measured *t, const char *line)
{
	struct coll_measured_host *h = &t->host[t->hosts];
	int whole = 0, end = -1;

	*h = (struct coll_measured_host){.site = -1};
	if (sscanf(line, "host %63s out %7u in %7u%n site %5d%n", h->name, &h->out, &h->in, &whole, &h->site, &end) < 3)
		return "expected: host NAME out RATE in RATE [site NUMBER]";
	if (line[end > 0 ? end : whole] != '\0' || h->site < -1 || (end > 0 && h->site < 0))
		return "more than a host";
	if (!is_rate(h->out) || !is_rate(h->in))
		return "a rate that no link has";
	if (coll_measured_find(t, h->name))
		return "a host that was there before";
	t->hosts++;
	return NULL;
}

static const char *read_site(struct coll_measured *t, const char *line)
{
	unsigned number, mbps;
	int end = 0;

	if (sscanf(line, "site %5u uplink %7u%n", &number, &mbps, &end) < 2 || line[end] != '\0')
		return "expected: site NUMBER uplink RATE";
	if (number != t->sites || !is_rate(mbps))
		return "sites are numbered in order, and each has a rate";
	t->uplink[t->sites++] = mbps;
	return NULL;
}

static bool read_word(const char *line, const char *name, char *word)
{
	const size_t length = strlen(name);
	int end = 0;

	return strncmp(line, name, length) == 0 && sscanf(line + length, " %31s%n", word, &end) == 1 &&
	       line[length] == ' ' && line[length + (size_t)end] == '\0';
}

static const char *read_line(struct reading *r, const char *line)
{
	struct coll_measured *t = r->tune;
	int end = 0;

	if (line[0] == '\0' || line[0] == '#')
		return NULL;
	if (!r->begun) {
		r->begun = strcmp(line, head) == 0;
		return r->begun ? NULL : "it is no table of coll-tune of this version";
	}
	if ((t->hosts == COLL_TUNE_HOSTS_MAX || t->sites == COLL_TUNE_HOSTS_MAX) && line[0] != 'm')
		return "too many hosts";
	if (strncmp(line, "host ", 5) == 0)
		return read_host(t, line);
	if (strncmp(line, "site ", 5) == 0)
		return read_site(t, line);
	if (read_word(line, "measured", t->measured) || read_word(line, "library", t->library) ||
	    read_word(line, "transport", t->transport))
		return NULL;
	if (sscanf(line, "hop_ns %9u%n", &t->hop_ns, &end) == 1 && line[end] == '\0')
		return NULL;
	return "a line of no meaning";
}

static const char *contradiction(const struct coll_measured *t)
{
	if (t->hosts == 0 || !t->transport[0])
		return "it lacks hosts or their transport";
	for (uint32_t h = 0; h < t->hosts; h++)
		if (t->sites == 0 ? t->host[h].site >= 0 : t->host[h].site < 0 || t->host[h].site >= (int)t->sites)
			return "a host of a site that is not there, or of none";
	return NULL;
}

bool coll_measured_parse(const char *text, struct coll_measured *t, char *why, size_t why_bytes)
{
	struct reading r = {.tune = t};
	int number = 0;

	*t = (struct coll_measured){.hosts = 0};
	t->host = malloc(COLL_TUNE_HOSTS_MAX * sizeof(*t->host));
	t->uplink = malloc(COLL_TUNE_HOSTS_MAX * sizeof(*t->uplink));
	if (!t->host || !t->uplink)
		r.wrong = "out of memory";
	for (const char *at = text; *at && !r.wrong; number++) {
		const size_t length = strcspn(at, "\n");
		char line[160];

		snprintf(line, sizeof(line), "%.*s", (int)(length < sizeof(line) ? length : sizeof(line)), at);
		r.wrong = length < sizeof(line) ? read_line(&r, line) : "a line that is too long";
		at += length + (at[length] == '\n');
	}
	if (r.wrong)
		snprintf(why, why_bytes, "line %d: %s", number, r.wrong);
	else if ((r.wrong = contradiction(t)) != NULL)
		snprintf(why, why_bytes, "%s", r.wrong);
	if (r.wrong)
		coll_measured_free(t);
	return !r.wrong;
}

void coll_measured_free(struct coll_measured *t)
{
	free(t->host);
	free(t->uplink);
	*t = (struct coll_measured){.hosts = 0};
}

const struct coll_measured_host *coll_measured_find(const struct coll_measured *t, const char *name)
{
	for (uint32_t h = 0; h < t->hosts; h++)
		if (strcmp(t->host[h].name, name) == 0)
			return &t->host[h];
	return NULL;
}
