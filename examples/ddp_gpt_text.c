#include "ddp_gpt_text.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_NAME "ddp_gpt_text.txt"

static int explain(char *why, size_t why_bytes, const char *path, const char *cause)
{
	snprintf(why, why_bytes, "%s: %s", path, cause);
	return -1;
}

/* Whatever fopen() can read, pipes too: the size is known when it ends. */
static int slurp(FILE *f, uint8_t **text, size_t *len_bytes)
{
	size_t room = 1 << 20, used = 0, n;
	uint8_t *buf = malloc(room), *grown;

	while (buf && (n = fread(buf + used, 1, room - used, f)) > 0) {
		used += n;
		if (used < room)
			continue;
		room *= 2;
		grown = realloc(buf, room);
		if (!grown)
			free(buf);
		buf = grown;
	}
	if (!buf || ferror(f)) {
		free(buf);
		return -1;
	}
	*text = buf;
	*len_bytes = used;
	return 0;
}

/* The first of the places where the default text may be that exists. */
static const char *find_default(char *beside, size_t len_bytes)
{
	static const char *const places[] = {DDP_GPT_TEXT_BUILT, DDP_GPT_TEXT_INSTALLED};
	ssize_t n = readlink("/proc/self/exe", beside, len_bytes - sizeof(DEFAULT_NAME) - 1);
	char *slash;

	beside[n > 0 ? n : 0] = 0;
	slash = strrchr(beside, '/');
	strcpy(slash ? slash + 1 : beside, DEFAULT_NAME);
	if (access(beside, R_OK) == 0)
		return beside;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (access(places[i], R_OK) == 0)
			return places[i];
	return NULL;
}

int text_read(const char *path, uint8_t **text, size_t *len_bytes, char *why, size_t why_bytes)
{
	char beside[PATH_MAX];
	FILE *f;
	int rc;

	if (!path && !(path = find_default(beside, sizeof(beside))))
		return explain(why, why_bytes, DEFAULT_NAME,
		               "the default text does not exist; name a file with --data");
	f = fopen(path, "re");
	if (!f)
		return explain(why, why_bytes, path, strerror(errno));
	rc = slurp(f, text, len_bytes);
	if (rc)
		explain(why, why_bytes, path, strerror(errno));
	fclose(f);
	if (!rc && *len_bytes == 0) {
		free(*text);
		*text = NULL;
		return explain(why, why_bytes, path, "the file is empty");
	}
	return rc;
}

bool text_is_file(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}
