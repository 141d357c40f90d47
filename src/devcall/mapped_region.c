/*
 * See region.h. Nothing here is on the path of a call.
 *
 * A rank's page lies in memory of the transport between the processes of a host, which offers it to the others, or in
 * plain memory if all ranks are in one process. Its slots are a region of its device: their descriptor goes over the
 * same link, their handle with what the ranks exchange, and within a process the address is enough.
 */
#include "devcall/mapped_region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/fork.h"
#include "base/messages.h"
#include "devcall/mapped_call.h"
#include "devcall/mapped_mapper.h"
#include "devcall/mapped_records.h"
#include "devcall/mapped_state.h"
#include "record/way.h"

enum { OFFER_WINDOW = UINT16_MAX - 1, HAND_WINDOW = UINT16_MAX - 2 };

static struct coll_channel_key key_of(const struct coll_comm *comm, uint16_t window)
{
	return (struct coll_channel_key){.comm = comm->id, .epoch = comm->epoch, .lane = UINT16_MAX, .window = window};
}

struct coll_channel_key coll_mapped_region_key(const struct coll_mapped *d, int place, uint32_t generation)
{
	enum { KEYS = 1024 }; /* of a place: far more than can be on their way */

	return (struct coll_channel_key){.comm = d->id,
	                                 .epoch = d->epoch,
	                                 .lane = UINT16_MAX,
	                                 .window = (uint16_t)((uint32_t)place * KEYS + generation % KEYS)};
}

static size_t slot_bytes(const struct coll_comm *comm)
{
	const size_t asked = comm->ctx->settings.device_slot_bytes;

	if (asked < COLL_MAPPED_SLOT_MIN)
		return COLL_MAPPED_SLOT_MIN;
	return asked > COLL_MAPPED_SLOT_MAX ? COLL_MAPPED_SLOT_MAX : asked / 4096 * 4096;
}

static size_t staging_bytes(const struct coll_mapped *d)
{
	return 2 * d->slot_bytes;
}

bool coll_mapped_eligible(const struct coll_comm *comm)
{
	bool all = comm->size >= 2 && comm->size <= COLL_MAPPED_RANKS_MAX && comm->rank_map.hosts == 1 &&
	           comm->ctx->settings.device_direct;

	for (int r = 0; r < comm->size && all; r++)
		all = coll_comm_peer_info(comm, r)->device;
	return all;
}

static void say(struct coll_mapped *d, const char *why)
{
	if (!d->facts.about[0])
		snprintf(d->facts.about, sizeof(d->facts.about), "%.150s", why);
}

/* The last error of the device, without its number. */
static void say_device(struct coll_mapped *d)
{
	struct coll_error_box err;

	coll_device_error(d->device, &err);
	say(d, coll_message_split(err.status, err.message).text);
}

/* ---- Own memory ---- */

/* Equal in all ranks of a process, and nowhere else on the host. */
static void name_process(struct coll_mapped_export *export)
{
	const void *bytes = (const void *)(uintptr_t)getauxval(AT_RANDOM);

	export->pid = (uint32_t)getpid();
	if (bytes)
		memcpy(export->process, bytes, sizeof(export->process));
}

/* A second mapping of a page of the transport, for the device: it may stay after the transport has ended. */
static struct mapped_page *map_again(const void *base)
{
	void *p = mremap((void *)(uintptr_t)base, 0, MAPPED_PAGE, MREMAP_MAYMOVE);

	return p == MAP_FAILED ? NULL : p;
}

/* Memory that all processes of the host can map: of the one transport that has links to all of them. */
static bool make_shared_page(struct coll_comm *comm, struct coll_mapped *d)
{
	for (int r = 0; r < comm->size; r++) {
		struct mapped_peer *p = &d->peers[r];
		struct coll_opened_transport *opened = NULL;
		struct coll_error_box err;

		coll_error_clear(&err);
		if (r == comm->rank)
			continue;
		if (coll_context_link(comm->ctx, coll_comm_process(comm, r), &opened, &p->link, &err) > COLL_AGAIN ||
		    !opened->caps.offers || (d->opened && d->opened != opened)) {
			say(d, "the ranks share no memory of the host");
			return false;
		}
		d->opened = opened;
		p->transport = &opened->table;
	}
	if (d->opened->table.mem_alloc(d->opened->inst, MAPPED_PAGE, &d->memory) != COLL_OK) {
		d->memory.base = NULL;
		say(d, "no memory that other processes can map");
		return false;
	}
	d->page = map_again(d->memory.base);
	if (!d->page)
		say(d, "out of memory");
	return d->page != NULL;
}

static bool make_plain_page(struct coll_mapped *d)
{
	struct mapped_shared *s = calloc(1, sizeof(*s));
	void *p = s ? mmap(NULL, MAPPED_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

	if (p == MAP_FAILED) {
		free(s);
		say(d, "out of memory");
		return false;
	}
	s->page = d->page = p;
	atomic_init(&s->users, 1);
	d->shared = s;
	return true;
}

static bool make_staging(struct coll_mapped *d)
{
	void *p = mmap(NULL, staging_bytes(d), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		say(d, "out of memory");
		return false;
	}
	d->staging = p;
	if (d->device->table->pin(d->device, p, staging_bytes(d), &d->staging_at) == COLL_OK)
		return true;
	d->staging_at = 0;
	say_device(d);
	return false;
}

static bool make(struct coll_comm *comm, struct coll_mapped *d)
{
	const struct coll_device_table *t = d->device->table;

	if (!(comm->ctx->group ? make_plain_page(d) : make_shared_page(comm, d)))
		return false;
	if (t->pin(d->device, d->page, MAPPED_PAGE, &d->page_at) != COLL_OK) {
		d->page_at = 0;
		say_device(d);
		return false;
	}
	if (t->region_create(d->device, (size_t)mapped_found_at(d) + MAPPED_FOUND_BYTES + MAPPED_GATES_BYTES,
	                     &d->region) != COLL_OK ||
	    t->clear(d->device, (uint64_t[]){mapped_gate(d, false), mapped_gate(d, true)}, 2) != COLL_OK) {
		say_device(d);
		return false;
	}
	if (!make_staging(d))
		return false;
	d->base = (struct mapped_base){
	        .in = d->staging,
	        .out = d->staging + d->slot_bytes,
	        .in_at = d->staging_at,
	        .out_at = d->staging_at + d->slot_bytes,
	        .guard = {.word = mapped_word(d->page, d->page_at, &d->page->guard), .gate = mapped_gate(d, false)}};
	return true;
}

void coll_mapped_offer(struct coll_comm *comm, struct coll_mapped_export *export)
{
	struct coll_mapped *d = calloc(1, sizeof(*d));

	*export = (struct coll_mapped_export){.can = 0};
	comm->direct = &d->facts;
	if (!d) {
		snprintf(export->why, sizeof(export->why), "out of memory");
		return;
	}
	d->device = comm->ctx->device;
	d->rank = comm->rank;
	d->size = comm->size;
	d->id = comm->id;
	d->epoch = comm->epoch;
	d->slot_bytes = slot_bytes(comm);
	d->region.fd = -1;
	for (int i = 0; i < MAPPED_REGIONS; i++)
		d->own[i].region.fd = -1;
	pthread_mutex_init(&d->mapper.lock, NULL);
	pthread_cond_init(&d->mapper.wanted, NULL);
	export->can = make(comm, d);
	snprintf(export->why, sizeof(export->why), "%.60s", d->facts.about);
	name_process(export);
	export->device = (uint64_t)(uintptr_t)d->device;
	export->shared = (uint64_t)(uintptr_t)d->shared;
	export->page_at = d->page_at;
	export->region = d->region.export;
}

/* ---- Memory of the others ---- */

static bool same_process(const struct coll_mapped_export *a, const struct coll_mapped_export *b)
{
	return a->pid == b->pid && memcmp(a->process, b->process, sizeof(a->process)) == 0;
}

/* Tell a peer of another rank what it needs. */
static bool tell(struct coll_comm *comm, struct mapped_peer *p, bool here)
{
	const struct coll_mapped *d = coll_mapped_of(comm);
	const struct coll_channel_key offer = key_of(comm, OFFER_WINDOW), hand = key_of(comm, HAND_WINDOW);
	coll_status st;

	if (comm->ctx->group)
		return true;
	st = p->transport->shared->offer(p->link, &offer, &d->memory);
	p->offered = st == COLL_OK;
	if (st == COLL_OK && !here && d->region.fd >= 0)
		st = p->transport->shared->hand(p->link, &hand, d->region.fd);
	return st == COLL_OK;
}

/* AGAIN: it is still on its way. */
static coll_status map_page(struct coll_comm *comm, struct mapped_peer *p, const struct coll_mapped_export *export)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const struct coll_channel_key key = key_of(comm, OFFER_WINDOW);
	coll_status st;

	if (p->page)
		return COLL_OK;
	if (comm->ctx->group) {
		p->shared = (struct mapped_shared *)(uintptr_t) export->shared;
		atomic_fetch_add(&p->shared->users, 1);
		p->page = p->shared->page;
		p->page_at = export->page_at;
		return COLL_OK;
	}
	st = p->transport->shared->offered(p->link, &key, &p->offer);
	if (st != COLL_OK)
		return st;
	p->page = map_again((const void *)(uintptr_t)p->offer.base);
	if (!p->page)
		return COLL_ERR_MEMORY;
	st = d->device->table->pin(d->device, p->page, MAPPED_PAGE, &p->page_at);
	p->pinned = st == COLL_OK;
	if (st != COLL_OK)
		say_device(d);
	return st;
}

static coll_status map_slots(struct coll_comm *comm, struct mapped_peer *p, const struct coll_mapped_export *export,
                             bool here)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const struct coll_channel_key key = key_of(comm, HAND_WINDOW);
	coll_status st = COLL_OK;
	int fd = -1;

	if (p->slots)
		return COLL_OK;
	if (here) {
		if (!d->device->table->reaches(d->device, (struct coll_device *)(uintptr_t) export->device)) {
			say(d, "a device cannot access the memory of another");
			return COLL_ERR_UNSUPPORTED;
		}
		p->slots = export->region.address;
		return COLL_OK;
	}
	if (export->region.share == COLL_DEVICE_SHARE_NONE) {
		say(d, "device memory cannot be shared between processes");
		return COLL_ERR_UNSUPPORTED;
	}
	if (export->region.share == COLL_DEVICE_SHARE_DESCRIPTOR)
		st = p->transport->shared->handed(p->link, &key, &fd);
	if (st == COLL_OK) {
		st = d->device->table->region_import(d->device, &export->region, fd, &p->import);
		if (st != COLL_OK)
			say(d, fd >= 0 ? "a descriptor of device memory cannot be mapped"
			               : "legacy handles are refused, as in other PID namespaces");
		p->slots = st == COLL_OK ? p->import.address : 0;
	}
	if (fd >= 0)
		coll_fd_close(fd);
	return st;
}

/* One look at all peers. */
static coll_status map_all(struct coll_comm *comm, const struct coll_mapped_export *exports)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	bool waits = false;

	for (int r = 0; r < comm->size; r++) {
		struct mapped_peer *p = &d->peers[r];
		coll_status st;

		if (r == comm->rank)
			continue;
		p->here = same_process(&exports[r], &exports[comm->rank]);
		st = map_page(comm, p, &exports[r]);
		if (st == COLL_OK)
			st = map_slots(comm, p, &exports[r], p->here);
		if (st != COLL_OK && st != COLL_AGAIN) {
			say(d, "the memory of a rank cannot be mapped");
			return st;
		}
		waits |= st == COLL_AGAIN;
	}
	return waits ? COLL_AGAIN : COLL_OK;
}

void coll_mapped_map(struct coll_comm *comm, const struct coll_mapped_export *exports, struct coll_mapped_verdict *mine)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const uint64_t until = coll_clock_ns() + (uint64_t)comm->ctx->settings.create_timeout_ms * 1000000;
	coll_status st = COLL_OK;

	*mine = (struct coll_mapped_verdict){.mapped = 0};
	for (int r = 0; r < comm->size; r++)
		if (!exports[r].can) {
			snprintf(mine->why, sizeof(mine->why), "%.59s", exports[r].why);
			return;
		}
	d->one_device = exports[0].pci != 0;
	for (int r = 1; r < comm->size; r++)
		d->one_device = d->one_device && exports[r].pci == exports[0].pci;
	/* Every rank is told, whatever comes of the others: nobody waits in vain. */
	for (int r = 0; r < comm->size; r++)
		if (r != comm->rank && !tell(comm, &d->peers[r], same_process(&exports[r], &exports[comm->rank])))
			st = COLL_ERR_UNSUPPORTED;
	d->peers[comm->rank].page = d->page;
	d->peers[comm->rank].page_at = d->page_at;
	d->peers[comm->rank].slots = d->region.export.address;
	while (st == COLL_OK && (st = map_all(comm, exports)) == COLL_AGAIN && coll_clock_ns() < until) {
		coll_context_progress(comm->ctx);
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
		st = COLL_OK;
	}
	mine->mapped = st == COLL_OK;
	if (st != COLL_OK)
		say(d, "the memory of a rank did not come in time");
	snprintf(mine->why, sizeof(mine->why), "%.59s", d->facts.about);
}

/* How most of the memory is mapped, for people. */
static const char *how(const struct coll_mapped *d)
{
	const char *text = "in one process";

	for (int r = 0; r < d->size; r++)
		if (d->peers[r].import.share == COLL_DEVICE_SHARE_HANDLE)
			text = "by legacy handles";
		else if (d->peers[r].import.share == COLL_DEVICE_SHARE_DESCRIPTOR)
			return "by descriptors";
	return text;
}

void coll_mapped_agree(struct coll_comm *comm, const struct coll_mapped_verdict *verdicts,
                       const struct coll_mapped_order *order)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	int bad = -1;

	for (int r = comm->size - 1; r >= 0; r--)
		bad = verdicts[r].mapped ? bad : r;
	if (!d)
		return;
	if (d->region.fd >= 0)
		coll_fd_close(d->region.fd);
	d->region.fd = -1;
	if (d->opened && d->memory.base)
		d->opened->table.shared->settle(d->opened->inst, &d->memory);
	/* Before the first call: drivers read it without a lock of the communicator's thread. */
	d->facts.op = (struct coll_intra_op){
	        .poll = coll_mapped_poll, .where = coll_mapped_where, .arg = d, .way = COLL_WAY_DEVICE_DIRECT};
	memcpy(d->peer, order->peer, sizeof(d->peer));
	d->facts.describe = coll_records_describe;
	d->facts.on = bad < 0;
	if (d->facts.on)
		snprintf(d->facts.about, sizeof(d->facts.about), "mapped %s; %.95s", how(d), order->about);
	else
		snprintf(d->facts.about, sizeof(d->facts.about), "rank %d: %.59s", bad, verdicts[bad].why);
	coll_log(&comm->ctx->logger, COLL_LOG_INFO, "device memory of communicator %016llx: %s%s",
	         (unsigned long long)comm->id, d->facts.on ? "" : "staged: ", d->facts.about);
}

/* ---- End ---- */

/* Whether a peer may still read this rank's slots. Memory that it maps by a descriptor is its own, too. */
static bool is_read_by(const struct coll_mapped *d, const struct mapped_peer *p)
{
	if (!p->page || (!p->here && d->region.export.share == COLL_DEVICE_SHARE_DESCRIPTOR))
		return false;
	if (atomic_load(&p->page->graph_left) != atomic_load(&p->page->graph_given))
		return true;
	return (int32_t)(atomic_load(&p->page->finished) - atomic_load(&p->page->enqueued)) < 0 &&
	       !atomic_load(&p->page->left);
}

static bool is_read(const struct coll_mapped *d)
{
	bool read = false;

	for (int r = 0; r < d->size; r++)
		if (r != d->rank)
			read |= is_read_by(d, &d->peers[r]);
	return read;
}

static void let_go(struct coll_mapped *d, struct mapped_peer *p)
{
	d->device->table->region_close(d->device, &p->import);
	if (p->pinned)
		d->device->table->unpin(d->device, p->page);
	if (p->page && !p->shared)
		munmap(p->page, MAPPED_PAGE);
	if (p->offer.base)
		p->transport->shared->give_back(p->link, &p->offer);
	if (p->shared && atomic_fetch_sub(&p->shared->users, 1) == 1) {
		munmap(p->shared->page, MAPPED_PAGE);
		free(p->shared);
	}
}

static void free_own(struct coll_comm *comm, struct coll_mapped *d)
{
	const struct coll_channel_key key = key_of(comm, OFFER_WINDOW);

	coll_records_close(d);
	if (d->staging_at)
		d->device->table->unpin(d->device, d->staging);
	if (d->staging)
		munmap(d->staging, staging_bytes(d));
	d->device->table->region_destroy(d->device, &d->region);
	if (d->page_at)
		d->device->table->unpin(d->device, d->page);
	if (d->page && !d->shared)
		munmap(d->page, MAPPED_PAGE);
	for (int r = 0; r < d->size; r++)
		if (d->peers[r].offered)
			d->peers[r].transport->shared->withdraw(d->peers[r].link, &key);
	if (d->memory.base)
		d->opened->table.mem_free(d->opened->inst, &d->memory);
	if (d->shared && atomic_fetch_sub(&d->shared->users, 1) == 1) {
		munmap(d->shared->page, MAPPED_PAGE);
		free(d->shared);
	}
}

/* This rank's own kernels of captured calls. */
static bool wait_for_graphs(struct coll_mapped *d, uint64_t until)
{
	while (!coll_mapped_graphs_have_left(d) && coll_clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
	return coll_mapped_graphs_have_left(d);
}

void coll_mapped_destroy(struct coll_comm *comm, bool stuck, struct coll_device_region *keep)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const uint64_t until = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN);
	char records[128];

	if (!d)
		return;
	comm->direct = NULL;
	coll_records_describe(&d->facts, records, sizeof(records));
	if (records[0])
		coll_log(&comm->ctx->logger, COLL_LOG_INFO, "device memory of communicator %016llx%s",
		         (unsigned long long)comm->id, records);
	stuck = !wait_for_graphs(d, until) || stuck;
	if (!stuck && d->page)
		atomic_store(&d->page->left, 1);
	while (!stuck && is_read(d) && coll_clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
	stuck = stuck || is_read(d) || coll_device_is_held(d->device);
	stuck = !coll_mapper_stop(d) || stuck;
	if (stuck) {
		coll_log(
		        &comm->ctx->logger, COLL_LOG_WARN,
		        "[COLL-5113] %s may still be used by a communicator that has ended: %zu MiB of its memory stay",
		        d->device->name, (size_t)d->region.len_bytes >> 20);
		if (d->region.fd >= 0)
			coll_fd_close(d->region.fd);
		return; /* all of it stays */
	}
	for (int r = 0; r < d->size; r++)
		if (r != d->rank)
			let_go(d, &d->peers[r]);
	if (keep && d->graphs.words) {
		*keep = d->region;
		d->region = (struct coll_device_region){.fd = -1};
	}
	free_own(comm, d);
	pthread_cond_destroy(&d->mapper.wanted);
	pthread_mutex_destroy(&d->mapper.lock);
	free(d);
}
