/*
 * A reader of the part of XML in which NCCL saves machines: elements and attributes. It expects hostile
 * input: sizes and depth are limited, nothing outside the text is opened, and each error names file and line.
 *
 * A text is read by one walk: coll_xml_next() until COLL_XML_END or COLL_XML_ERROR. It changes the text that it reads.
 */
#ifndef COLL_TOOLS_XML_H
#define COLL_TOOLS_XML_H

#include <stdbool.h>
#include <stddef.h>

enum { COLL_XML_BYTES_MAX = 16 << 20, COLL_XML_DEPTH_MAX = 100, COLL_XML_ATTRIBUTES_MAX = 40 };

enum coll_xml_event {
	COLL_XML_OPEN,  /* an element begins: tag, attributes */
	COLL_XML_CLOSE, /* the element ends: tag */
	COLL_XML_END,   /* all is read */
	COLL_XML_ERROR  /* why has the reason */
};

struct coll_xml {
	const char *tag;
	int line; /* of the event */
	int depth;
	/* The rest is the reader's own. */
	const char *name; /* of the file, for errors */
	char *at, *end;
	int line_at;
	int count; /* attributes */
	const char *names[COLL_XML_ATTRIBUTES_MAX], *values[COLL_XML_ATTRIBUTES_MAX];
	const char *open[COLL_XML_DEPTH_MAX];
	int open_line[COLL_XML_DEPTH_MAX];
	bool closing, rooted, failed;
	char *why;
	size_t why_bytes;
};

/* What `read` makes of the text of a file, which has a zero behind it; NULL with the reason in why, which begins with
 * the file's name. */
struct coll_graph;
typedef struct coll_graph *coll_xml_graph_fn(const char *name, char *text, size_t len_bytes, char *why,
                                             size_t why_bytes);
struct coll_graph *coll_xml_graph(const char *path, coll_xml_graph_fn *read, char *why, size_t why_bytes);

/* Begin to read a text with a zero at text[len_bytes]. name stands for it in errors; both must stay. */
void coll_xml_begin(struct coll_xml *x, const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes);

enum coll_xml_event coll_xml_next(struct coll_xml *x);

/* Of the element that begins: the attribute's value, or NULL. */
const char *coll_xml_attribute(const struct coll_xml *x, const char *name);

/* The attribute as a whole number from least to most (base 10, or 16 if it begins with 0x); absent leaves *value as it
 * is. False, and an error: it is something else. */
bool coll_xml_number(struct coll_xml *x, const char *name, long least, long most, long *value);

/* An error of the reader's user at the line of the event: "FILE:LINE: ...". The first error stays. Returns false. */
bool coll_xml_fail(struct coll_xml *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
