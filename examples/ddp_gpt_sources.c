#include "ddp_gpt_sources.h"
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES 4096

/* What stands behind the last @, unless a file is called so. Returns how much of the name is left; 0: it is wrong. */
static size_t split_weight(const char *name, double *weight)
{
	const char *at = strrchr(name, '@');
	struct stat st;
	char *end;

	*weight = 1;
	if (!at || stat(name, &st) == 0)
		return strlen(name);
	*weight = strtod(at + 1, &end);
	return end == at + 1 || *end || !(*weight > 0 && isfinite(*weight)) ? 0 : (size_t)(at - name);
}

static int explain(char *why, size_t why_bytes, const char *name, const char *cause)
{
	snprintf(why, why_bytes, "--data %s: %s", name, cause);
	return -1;
}

static int add(struct source_files *files, const char *path)
{
	char **grown = realloc(files->paths, (size_t)(files->count + 1) * sizeof(*grown));

	if (!grown)
		return -1;
	files->paths = grown;
	grown[files->count] = strdup(path);
	return grown[files->count] ? files->count++, 0 : -1;
}

/* The files that match, hidden ones and directories left out, sorted by glob(). */
static int add_matches(struct source_files *files, const char *pattern)
{
	struct stat st;
	glob_t found;
	int rc = glob(pattern, 0, NULL, &found);

	if (rc == GLOB_NOMATCH)
		return 0;
	if (rc)
		return -1;
	for (size_t i = 0; i < found.gl_pathc && !rc; i++)
		if (stat(found.gl_pathv[i], &st) == 0 && !S_ISDIR(st.st_mode))
			rc = add(files, found.gl_pathv[i]);
	globfree(&found);
	return rc;
}

/* A directory's name may hold what a pattern would read otherwise. */
static int add_directory(struct source_files *files, const char *name)
{
	char pattern[2 * NAME_BYTES + 8];
	size_t n = 0;

	for (const char *p = name; *p; p++) {
		if (strchr("*?[]\\", *p))
			pattern[n++] = '\\';
		pattern[n++] = *p;
	}
	strcpy(pattern + n, "/*");
	return add_matches(files, pattern);
}

int source_expand(const char *name, struct source_files *files, char *why, size_t why_bytes)
{
	char path[NAME_BYTES];
	struct stat st;
	size_t n;
	int rc;

	*files = (struct source_files){0};
	n = split_weight(name, &files->weight);
	if (n == 0 || n >= sizeof(path))
		return explain(why, why_bytes, name,
		               n ? strerror(ENAMETOOLONG) : "the weight behind @ must be more than 0");
	memcpy(path, name, n);
	path[n] = 0;
	if (stat(path, &st) == 0)
		rc = S_ISDIR(st.st_mode) ? add_directory(files, path) : add(files, path);
	else
		rc = strpbrk(path, "*?[") ? add_matches(files, path) : explain(why, why_bytes, path, strerror(errno));
	if (rc == 0 && files->count)
		return 0;
	if (rc == 0)
		explain(why, why_bytes, path, "no files");
	else if (strpbrk(path, "*?[") || stat(path, &st) == 0)
		explain(why, why_bytes, path, "cannot be listed");
	source_free(files);
	return -1;
}

void source_free(struct source_files *files)
{
	for (int i = 0; i < files->count; i++)
		free(files->paths[i]);
	free(files->paths);
	*files = (struct source_files){0};
}
