/*
 * A libmunge for tests without munged: a credential is the user's number and the text in hexadecimal digits, and every
 * path is its daemon's socket. MUNGE_STUB_USER is who it says has sealed what it opens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { OK = 0, BAD_CREDENTIAL = 8, REPLAYED = 17, SOCKET = 8 };

void *munge_ctx_create(void)
{
	return calloc(1, 1);
}

void munge_ctx_destroy(void *context)
{
	free(context);
}

int munge_ctx_get(void *context, int option, const char **path)
{
	(void)context;
	if (option == SOCKET)
		*path = "/dev/null";
	return OK;
}

int munge_ctx_set(void *context, int option, int value)
{
	(void)context;
	(void)option;
	(void)value;
	return OK;
}

int munge_encode(char **credential, void *context, const unsigned char *text, int len)
{
	char *at = *credential = malloc(2 * (size_t)len + 40);

	(void)context;
	at += sprintf(at, "STUB:%u:", (unsigned)geteuid());
	for (int i = 0; i < len; i++)
		at += sprintf(at, "%02x", text[i]);
	return OK;
}

int munge_decode(const char *credential, void *context, void **text, int *len, uid_t *user, gid_t *group)
{
	const char *said = getenv("MUNGE_STUB_USER");
	unsigned number, byte;
	int at = 0;
	char *to;

	(void)context;
	if (sscanf(credential, "STUB:%u:%n", &number, &at) != 1 || !at)
		return BAD_CREDENTIAL;
	credential += at;
	*text = to = malloc(strlen(credential) / 2 + 1);
	for (*len = 0; sscanf(credential, "%2x", &byte) == 1; credential += 2)
		to[(*len)++] = (char)byte;
	*user = said ? (uid_t)atoi(said) : (uid_t)number;
	*group = 0;
	return REPLAYED;
}

const char *munge_strerror(int status)
{
	return status == BAD_CREDENTIAL ? "Invalid credential format" : "an error";
}
