/*
 * Links measured, shown: see links_show.h.
 */
#include "links_show.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR = 4, SHOWN = 24, CELL = 28, MARGIN = 120 };

/* The best between two hosts, or ranks of one host, both ways. */
struct link {
	int a, b; /* the first ranks of the two hosts; or the two ranks */
	bool inside;
	double us, mb_s;
	bool slow, late;
};

struct verdict {
	struct link *link;
	int n;
	double us[2], mb_s[2]; /* the usual: between hosts, inside */
	bool any;
};

static int first_of(const struct links *l, int rank)
{
	int r = 0;

	while (strcmp(l->host[r], l->host[rank]) != 0)
		r++;
	return r;
}

/* The slower of both ways: each of them is needed. */
static double both_ways(const struct links *l, int a, int b)
{
	const double there = l->mb_s[a * l->n + b], back = l->mb_s[b * l->n + a];

	return there < back ? there : back;
}

static struct link *find(struct verdict *v, int a, int b, bool inside)
{
	for (int i = 0; i < v->n; i++)
		if (v->link[i].inside == inside &&
		    ((v->link[i].a == a && v->link[i].b == b) || (v->link[i].a == b && v->link[i].b == a)))
			return &v->link[i];
	v->link[v->n] = (struct link){.a = a, .b = b, .inside = inside};
	return &v->link[v->n++];
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of rates the upper median, of times the lower: of four hosts one that is slow has half of the links. */
static void usual(struct verdict *v, bool inside, double *us, double *mb_s)
{
	double *times = calloc((size_t)v->n + 1, sizeof(*times)), *rates = calloc((size_t)v->n + 1, sizeof(*rates));
	int n = 0;

	*us = *mb_s = 0;
	for (int i = 0; times && rates && i < v->n; i++)
		if (v->link[i].inside == inside) {
			times[n] = v->link[i].us;
			rates[n++] = v->link[i].mb_s;
		}
	if (n > 0) {
		qsort(times, (size_t)n, sizeof(*times), compare);
		qsort(rates, (size_t)n, sizeof(*rates), compare);
		*us = times[(n - 1) / 2];
		*mb_s = rates[n / 2];
	}
	free(times);
	free(rates);
}

static bool judge(const struct links *l, struct verdict *v)
{
	*v = (struct verdict){.link = calloc((size_t)l->n * (size_t)l->n + 1, sizeof(*v->link))};
	if (!v->link)
		return false;
	for (int a = 0; a < l->n; a++)
		for (int b = a + 1; b < l->n; b++) {
			const int ha = first_of(l, a), hb = first_of(l, b);
			struct link *k = ha == hb ? find(v, a, b, true) : find(v, ha, hb, false);
			const double us = l->us[a * l->n + b], mb_s = both_ways(l, a, b);

			k->mb_s = mb_s > k->mb_s ? mb_s : k->mb_s;
			k->us = k->us == 0 || us < k->us ? us : k->us;
		}
	for (int inside = 0; inside < 2; inside++)
		usual(v, inside, &v->us[inside], &v->mb_s[inside]);
	for (int i = 0; i < v->n; i++) {
		struct link *k = &v->link[i];

		k->slow = k->mb_s * FAR <= v->mb_s[k->inside];
		k->late = k->us >= v->us[k->inside] * FAR;
		v->any |= k->slow || k->late;
	}
	return true;
}

bool links_far(const struct links *l, unsigned char *pairs)
{
	struct verdict v;

	memset(pairs, 0, (size_t)l->n * (size_t)l->n);
	if (!judge(l, &v))
		return false;
	for (int i = 0; i < v.n; i++)
		pairs[v.link[i].a * l->n + v.link[i].b] = v.link[i].slow || v.link[i].late;
	free(v.link);
	return true;
}

/* Of two ranks: whether their link is far behind. */
static bool marked(const struct links *l, struct verdict *v, int a, int b, bool rate)
{
	const int ha = first_of(l, a), hb = first_of(l, b);
	const struct link *k = a == b ? NULL : ha == hb ? find(v, a, b, true) : find(v, ha, hb, false);

	return k && (rate ? k->slow : k->late);
}

/* ---- Text ---- */

static void matrix(const struct links *l, struct verdict *v, const char *title, bool rate, struct coll_text *out)
{
	const double *at = rate ? l->mb_s : l->us;
	const int shown = l->n < SHOWN ? l->n : SHOWN;

	coll_text_add(out, "%s, from the rank of the row to that of the column; * far behind\n%-16s", title, "");
	for (int b = 0; b < shown; b++)
		coll_text_add(out, " %8d", b);
	for (int a = 0; a < shown; a++) {
		coll_text_add(out, "\n%4d %-11.11s", a, l->host[a]);
		for (int b = 0; b < shown; b++)
			if (a == b)
				coll_text_add(out, " %8s", "-");
			else
				coll_text_add(out, " %7.1f%s", at[a * l->n + b], marked(l, v, a, b, rate) ? "*" : " ");
	}
	coll_text_add(out, "\n");
	if (shown < l->n)
		coll_text_add(out, "and %d ranks more: --json and --svg have all\n", l->n - shown);
}

static void add_name(const struct links *l, const struct link *k, struct coll_text *out)
{
	if (k->inside)
		coll_text_add(out, "rank %d-rank %d on %s", k->a, k->b, l->host[k->a]);
	else
		coll_text_add(out, "link %s-%s", l->host[k->a], l->host[k->b]);
}

static void as_text(const struct links *l, struct verdict *v, struct coll_text *out)
{
	matrix(l, v, "latency in us", false, out);
	matrix(l, v, "rate in MB/s", true, out);
	for (int i = 0; i < v->n; i++) {
		const struct link *k = &v->link[i];

		if (!k->slow && !k->late)
			continue;
		coll_text_add(out, "slow: ");
		add_name(l, k, out);
		if (k->slow)
			coll_text_add(out, ": %.1f MB/s, median %.0f", k->mb_s, v->mb_s[k->inside]);
		if (k->late)
			coll_text_add(out, ": %.1f us, median %.1f", k->us, v->us[k->inside]);
		coll_text_add(out, "\n");
	}
	if (!v->any)
		coll_text_add(out, "no link is far behind the others of its kind\n");
}

/* ---- JSON ---- */

static void json_matrix(const struct links *l, const double *at, struct coll_text *out)
{
	for (int a = 0; a < l->n; a++) {
		coll_text_add(out, "%s\n[", a ? "," : "");
		for (int b = 0; b < l->n; b++)
			coll_text_add(out, "%s%.3f", b ? "," : "", at[a * l->n + b]);
		coll_text_add(out, "]");
	}
}

static void as_json(const struct links *l, const struct verdict *v, struct coll_text *out)
{
	const char *comma = "";

	coll_text_add(out, "{\"hosts\":[");
	for (int r = 0; r < l->n; r++) {
		coll_text_add(out, "%s", r ? "," : "");
		coll_text_add_json(out, l->host[r]);
	}
	coll_text_add(out, "],\n\"latency_us\":[");
	json_matrix(l, l->us, out);
	coll_text_add(out, "],\n\"rate_MB_s\":[");
	json_matrix(l, l->mb_s, out);
	coll_text_add(out, "],\n\"slow\":[");
	for (int i = 0; i < v->n; i++) {
		const struct link *k = &v->link[i];

		if (!k->slow && !k->late)
			continue;
		coll_text_add(out, "%s\n{\"ranks\":[%d,%d],\"hosts\":[", comma, k->a, k->b);
		coll_text_add_json(out, l->host[k->a]);
		coll_text_add(out, ",");
		coll_text_add_json(out, l->host[k->b]);
		coll_text_add(out, "],\"rate_MB_s\":%.3f,\"median_MB_s\":%.3f,\"latency_us\":%.3f,\"median_us\":%.3f}",
		              k->mb_s, v->mb_s[k->inside], k->us, v->us[k->inside]);
		comma = ",";
	}
	coll_text_add(out, "\n]}\n");
}

/* ---- SVG ---- */

/* Only what XML takes as it stands. */
static void add_host(struct coll_text *out, const char *host)
{
	for (const char *p = host; *p; p++)
		coll_text_add(out, "%c", strchr("<>&\"'", *p) || (unsigned char)*p < ' ' ? '?' : *p);
}

/* Dark is fast, by the logarithm: white is a hundredth of the fastest. */
static int shade(double mb_s, double most)
{
	const double part = mb_s > 0 && most > 0 ? 1 + log10(mb_s / most) / 2 : 0;

	return 255 - (int)((part > 0 ? part : 0) * 175);
}

static void as_svg(const struct links *l, struct verdict *v, struct coll_text *out)
{
	const int size = MARGIN + l->n * CELL + 10;
	double most = 0;

	for (int i = 0; i < l->n * l->n; i++)
		most = l->mb_s[i] > most ? l->mb_s[i] : most;
	coll_text_add(out,
	              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
	              "font-size=\"9\">\n<text x=\"4\" y=\"12\">MB/s, row to column; red: far behind</text>\n",
	              size, size);
	for (int a = 0; a < l->n; a++) {
		coll_text_add(out, "<text x=\"4\" y=\"%d\">%d ", MARGIN + a * CELL + CELL / 2, a);
		add_host(out, l->host[a]);
		coll_text_add(out, "</text><text x=\"%d\" y=\"%d\">%d</text>\n", MARGIN + a * CELL + 4, MARGIN - 6, a);
		for (int b = 0; b < l->n; b++) {
			const double mb_s = l->mb_s[a * l->n + b];
			const int grey = shade(mb_s, most);

			if (a == b)
				continue;
			coll_text_add(out,
			              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"rgb(%d,%d,255)\" "
			              "stroke=\"%s\"><title>%d to %d: %.1f MB/s, %.1f us</title></rect>\n",
			              MARGIN + b * CELL, MARGIN + a * CELL, CELL - 3, CELL - 3, grey, grey,
			              marked(l, v, a, b, true) || marked(l, v, a, b, false) ? "red" : "none", a, b,
			              mb_s, l->us[a * l->n + b]);
			coll_text_add(out, "<text x=\"%d\" y=\"%d\">%.0f</text>\n", MARGIN + b * CELL + 2,
			              MARGIN + a * CELL + CELL / 2, mb_s);
		}
	}
	coll_text_add(out, "</svg>\n");
}

bool links_show(const struct links *l, enum links_form form, struct coll_text *out)
{
	struct verdict v;

	if (!judge(l, &v)) {
		out->failed = true;
		return false;
	}
	switch (form) {
	case LINKS_TEXT: as_text(l, &v, out); break;
	case LINKS_JSON: as_json(l, &v, out); break;
	case LINKS_SVG: as_svg(l, &v, out); break;
	}
	free(v.link);
	return v.any;
}
