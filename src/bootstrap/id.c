/*
 * Unique ids (id.h): their bytes, and the id that a launcher's store carries. That one belongs to rank 0 of the
 * process, and its listeners are there while it meets the others; all others have a host (id_host.h).
 */
#include "bootstrap/id.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/proof.h"
#include "bootstrap/host_id.h"
#include "bootstrap/id_host.h"
#include "bootstrap/munge_share.h"
#include "bootstrap/pmi.h"
#include "bootstrap/pmix.h"

enum { ID_VERSION = 2, ID_PLACES_BYTES = 72 };
static const char id_magic[4] = {'C', 'O', 'L', 'i'};

struct packed {
	char magic[4];
	uint16_t version;
	uint16_t places_bytes;
	uint64_t key[2];
	uint64_t host; /* of the maker */
	unsigned char places[ID_PLACES_BYTES];
	uint64_t spare;
	uint64_t checksum; /* of everything before it */
};
_Static_assert(sizeof(struct packed) <= COLL_UNIQUE_ID_BYTES, "an id must fit");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What was published by this process's launcher; under lock. */
static struct {
	bool valid, met;
	coll_unique_id id;
	struct coll_rendezvous_listeners listeners; /* until the first meeting */
} published;

static uint64_t checksum(const struct packed *p)
{
	return coll_hash_bytes(0x1d, p, offsetof(struct packed, checksum));
}

static uint64_t host_hash(void)
{
	char host[COLL_TEXT_MAX];

	coll_bootstrap_host_id(NULL, host, sizeof(host));
	return coll_hash_bytes(0, host, strlen(host));
}

/* The name by which processes of the maker's host find it. */
static void unix_name(const uint64_t key[2], char *buf, size_t len_bytes)
{
	/* All users can read it, and must not learn the key. */
	const struct coll_proof name = COLL_PROOF(key, {"name", 4});

	snprintf(buf, len_bytes, "coll-id-%016llx", (unsigned long long)name.word[0]);
}

/* A Unix listener for this host, TCP listeners for the others. While somebody else has the name, the port is enough. */
coll_status coll_id_listen(const struct coll_settings *settings, const uint64_t key[2], uint16_t first, uint16_t last,
                           struct coll_rendezvous_listeners *l, uint16_t *port, struct coll_error_box *err)
{
	struct coll_address a;
	struct coll_ips at;
	char name[40];
	bool here;
	int why;
	/* AGAIN: no rank of another host can come, and those of this one need no address. */
	const coll_status st = coll_rendezvous_addresses(settings, NULL, &at, err);

	*l = (struct coll_rendezvous_listeners){.count = 0};
	if (st != COLL_OK && st != COLL_AGAIN)
		return st;
	unix_name(key, name, sizeof(name));
	here = coll_rendezvous_add(l, coll_listen_unix(name, &a)) || errno == EADDRINUSE;
	if (here && (st == COLL_AGAIN || coll_rendezvous_listen(l, &at, first, last, port)))
		return COLL_OK;
	why = errno;
	coll_error_set(err, COLL_ERR_SYSTEM, "cannot listen for the other ranks: %s%s%s", coll_errno_text(why).text,
	               first ? ", COLL_PORT_RANGE=" : "", settings->port_range);
	coll_rendezvous_unlisten(l);
	errno = why;
	return COLL_ERR_SYSTEM;
}

static coll_status make(const struct coll_settings *settings, coll_unique_id *id, struct coll_rendezvous_listeners *l,
                        struct coll_error_box *err)
{
	struct packed p = {.version = ID_VERSION, .host = host_hash()};
	struct coll_places places = {0};
	uint16_t first, last, port = 0;
	coll_status st = coll_port_range(settings, &first, &last, err);

	if (st != COLL_OK)
		return st;
	memcpy(p.magic, id_magic, sizeof(id_magic));
	if (!coll_random(p.key, sizeof(p.key)))
		return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes for the key of the job: getrandom: %s",
		                      coll_errno_text(errno).text);
	st = coll_id_listen(settings, p.key, first, last, l, &port, err);
	if (st != COLL_OK)
		return st;
	coll_places_local(settings, false, &places);
	for (int i = 0; i < places.count; i++)
		coll_address_set_port(&places.place[i], port);
	p.places_bytes = (uint16_t)coll_places_pack(&places, p.places, sizeof(p.places));
	p.checksum = checksum(&p);
	memset(id, 0, sizeof(*id));
	memcpy(id->bytes, &p, sizeof(p));
	return COLL_OK;
}

coll_status coll_bootstrap_unique_id(const struct coll_settings *settings, coll_unique_id *id,
                                     struct coll_error_box *err)
{
	struct coll_rendezvous_listeners listeners;
	coll_unique_id made;
	struct packed p;
	coll_status st = make(settings, &made, &listeners, err);

	if (st != COLL_OK)
		return st;
	memcpy(&p, made.bytes, sizeof(p));
	st = coll_id_host_start(p.key, &listeners, err);
	if (st == COLL_OK)
		*id = made;
	else
		coll_rendezvous_unlisten(&listeners);
	return st;
}

coll_status coll_id_read(const coll_unique_id *id, struct coll_places *places, uint64_t key[2],
                         struct coll_error_box *err)
{
	struct coll_places remote;
	struct coll_address a;
	struct packed p;
	char name[40];

	memcpy(&p, id->bytes, sizeof(p));
	if (memcmp(p.magic, id_magic, sizeof(id_magic)) != 0 || p.checksum != checksum(&p) ||
	    p.places_bytes > sizeof(p.places) || !coll_places_unpack(&remote, p.places, p.places_bytes))
		return coll_error_set(
		        err, COLL_ERR_ARGUMENT,
		        "coll_config.id is not a valid id, or was damaged in transit (all %d bytes count)",
		        COLL_UNIQUE_ID_BYTES);
	if (p.version != ID_VERSION)
		return coll_error_set(err, COLL_ERR_ARGUMENT, "coll_config.id has version %u, this library reads %d",
		                      p.version, ID_VERSION);
	memcpy(key, p.key, sizeof(p.key));
	places->count = 0;
	if (p.host == host_hash()) {
		unix_name(p.key, name, sizeof(name));
		coll_address_unix(&a, name);
		coll_places_add(places, &a);
	}
	for (int i = 0; i < remote.count; i++)
		coll_places_add(places, &remote.place[i]);
	return COLL_OK;
}

void coll_id_give_up(const coll_unique_id *id)
{
	struct coll_places places;
	uint64_t key[2];

	if (coll_id_read(id, &places, key, NULL) == COLL_OK)
		coll_id_host_give_up(key);
}

/* ---- Through a launcher ------------------------------------------------ */

static void to_hex(const coll_unique_id *id, char *text)
{
	for (int i = 0; i < COLL_UNIQUE_ID_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", (unsigned char)id->bytes[i]);
}

static bool from_hex(const char *text, coll_unique_id *id)
{
	char pair[3] = {0};

	if (strlen(text) != 2 * COLL_UNIQUE_ID_BYTES || strspn(text, "0123456789abcdef") != strlen(text))
		return false;
	for (int i = 0; i < COLL_UNIQUE_ID_BYTES; i++) {
		memcpy(pair, text + 2 * i, 2);
		id->bytes[i] = (char)strtoul(pair, NULL, 16);
	}
	return true;
}

static bool by_munge(const struct coll_identity *who)
{
	return strcmp(who->publish, "munge") == 0;
}

static coll_status share(const struct coll_settings *settings, const struct coll_identity *who, uint64_t deadline_ns,
                         struct coll_error_box *err)
{
	const bool root = who->rank == 0, pmix = strcmp(who->publish, "pmix") == 0, munge = by_munge(who);
	char text[2 * COLL_UNIQUE_ID_BYTES + 1] = "";
	coll_status st;

	if (root) {
		st = make(settings, &published.id, &published.listeners, err);
		if (st != COLL_OK)
			return st;
		to_hex(&published.id, text);
	}
	st = munge ? coll_munge_share(settings, who, text, sizeof(text), deadline_ns, err)
	           : (pmix ? coll_pmix_share : coll_pmi_share)(root, text, sizeof(text), deadline_ns, err);
	if (st == COLL_OK && !from_hex(text, &published.id))
		st = coll_error_set(err, COLL_ERR_BOOTSTRAP, "%s returned a value that is not the address of rank 0",
		                    who->publish);
	if (st == COLL_OK)
		published.valid = true;
	else
		coll_rendezvous_unlisten(&published.listeners);
	return st;
}

coll_status coll_id_publish(const struct coll_settings *settings, const struct coll_identity *who, uint64_t deadline_ns,
                            coll_unique_id *id, struct coll_error_box *err)
{
	coll_status st = COLL_OK;

	pthread_mutex_lock(&lock);
	if (!published.valid)
		st = share(settings, who, deadline_ns, err);
	if (st == COLL_OK)
		*id = published.id;
	pthread_mutex_unlock(&lock);
	return st;
}

void coll_id_take_listeners(struct coll_rendezvous_listeners *l)
{
	pthread_mutex_lock(&lock);
	*l = published.listeners;
	published.listeners.count = 0;
	pthread_mutex_unlock(&lock);
}

/* Ranks that did not receive the id look for a new one: so do those that did. */
void coll_id_exchanged(const struct coll_identity *who, coll_status st)
{
	if (!by_munge(who))
		return;
	coll_munge_share_end();
	pthread_mutex_lock(&lock);
	if (st != COLL_OK)
		published.valid = published.met = false;
	pthread_mutex_unlock(&lock);
}

bool coll_id_met(void)
{
	bool met;

	pthread_mutex_lock(&lock);
	met = published.met;
	published.met = true;
	pthread_mutex_unlock(&lock);
	return met;
}
