/*
 * The client side of MUNGE (munge.h). The few types and numbers below are those of libmunge 0.5, whose ABI has the
 * soname libmunge.so.2; nothing of it is needed to build.
 *
 * A credential is encrypted, names the user who made it, and says who may open it: here the same user alone. So it may
 * travel over a connection that proves nothing. Several ranks of a host open the same one, which its daemon calls a
 * replay: nobody but this user learns what is inside, so a replay gives nothing away, and is accepted.
 */
#include "bootstrap/munge.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errno_text.h"

enum { MUNGE_OPT_CIPHER = 0, MUNGE_OPT_TTL = 4, MUNGE_OPT_SOCKET = 8, MUNGE_OPT_UID = 9 };
enum { MUNGE_OK = 0, MUNGE_CIPHER_AES128 = 4, MUNGE_TTL_MAXIMUM = -1, MUNGE_REPLAYED = 17 };

struct munge {
	void *lib;
	void *(*create)(void);
	void (*destroy)(void *context);
	int (*get)(void *context, int option, ...);
	int (*set)(void *context, int option, ...);
	int (*encode)(char **credential, void *context, const void *text, int len_bytes);
	int (*decode)(const char *credential, void *context, void **text, int *len_bytes, uid_t *user, gid_t *group);
	const char *(*error)(int status);
};

/* The library stays loaded: dlopen() counts. */
static bool load(struct munge *m, char *why, size_t why_bytes)
{
	const struct {
		void **to;
		const char *name;
	} symbols[] = {
	        {(void **)&m->create, "munge_ctx_create"}, {(void **)&m->destroy, "munge_ctx_destroy"},
	        {(void **)&m->get, "munge_ctx_get"},       {(void **)&m->set, "munge_ctx_set"},
	        {(void **)&m->encode, "munge_encode"},     {(void **)&m->decode, "munge_decode"},
	        {(void **)&m->error, "munge_strerror"},
	};

	m->lib = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!m->lib) {
		snprintf(why, why_bytes, "there is no libmunge.so.2");
		return false;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].to = dlsym(m->lib, symbols[i].name);
		if (!*symbols[i].to) {
			snprintf(why, why_bytes, "libmunge.so.2 has no %s", symbols[i].name);
			return false;
		}
	}
	return true;
}

bool coll_munge_there(char *why, size_t why_bytes)
{
	struct munge m = {0};
	void *context;
	char *path = NULL;
	bool there;

	if (!load(&m, why, why_bytes))
		return false;
	context = m.create();
	there = context && m.get(context, MUNGE_OPT_SOCKET, &path) == MUNGE_OK && path && access(path, W_OK) == 0;
	if (!there)
		snprintf(why, why_bytes, "there is no munged at %.60s", path ? path : "its socket");
	if (context)
		m.destroy(context);
	return there;
}

static bool seal(const struct munge *m, void *context, const char *text, char *credential, char *why, size_t why_bytes)
{
	char *made = NULL;
	int status = m->set(context, MUNGE_OPT_UID, geteuid());
	bool fits;

	if (status == MUNGE_OK)
		status = m->set(context, MUNGE_OPT_CIPHER, MUNGE_CIPHER_AES128);
	if (status == MUNGE_OK)
		status = m->set(context, MUNGE_OPT_TTL, MUNGE_TTL_MAXIMUM);
	if (status == MUNGE_OK)
		status = m->encode(&made, context, text, (int)strlen(text));
	fits = status == MUNGE_OK && made && strlen(made) < COLL_CREDENTIAL_BYTES;
	if (fits)
		strcpy(credential, made);
	else
		snprintf(why, why_bytes, "munged makes no credential: %s", m->error(status));
	free(made);
	return fits;
}

bool coll_munge_seal(const char *text, char credential[COLL_CREDENTIAL_BYTES], char *why, size_t why_bytes)
{
	struct munge m = {0};
	void *context;
	bool ok;

	if (!load(&m, why, why_bytes))
		return false;
	context = m.create();
	if (!context) {
		snprintf(why, why_bytes, "no memory for a credential");
		return false;
	}
	ok = seal(&m, context, text, credential, why, why_bytes);
	m.destroy(context);
	return ok;
}

bool coll_munge_open(const char *credential, char *text, size_t text_bytes, char *why, size_t why_bytes)
{
	struct munge m = {0};
	void *payload = NULL;
	int len = 0, status;
	uid_t user = (uid_t)-1;
	gid_t group = (gid_t)-1;
	bool ok = false;

	if (!load(&m, why, why_bytes))
		return false;
	status = m.decode(credential, NULL, &payload, &len, &user, &group);
	if (status != MUNGE_OK && status != MUNGE_REPLAYED)
		snprintf(why, why_bytes, "munged does not open its credential: %s", m.error(status));
	else if (user != geteuid())
		snprintf(why, why_bytes, "its credential is of user %u", (unsigned)user);
	else if (!payload || len < 0 || (size_t)len >= text_bytes)
		snprintf(why, why_bytes, "its credential has %d bytes", len);
	else
		ok = true;
	if (ok) {
		memcpy(text, payload, (size_t)len);
		text[len] = 0;
	}
	if (payload && len > 0)
		explicit_bzero(payload, (size_t)len);
	free(payload);
	return ok;
}
