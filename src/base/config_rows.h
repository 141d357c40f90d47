/*
 * Every setting of the library: one row each, read by the environment, the file
 * named by COLL_CONFIG_FILE, coll_config.settings and coll-info.
 *
 *   ROW(kind, scope, member, name, default, help)
 *
 * kind: INT (int), SIZE (size_t, with K M G suffixes), BOOL (bool), TEXT
 * (char[COLL_TEXT_MAX]). AGREED rows must be equal on all ranks (values are
 * compared at creation); LOCAL rows may differ.
 */
ROW(INT, LOCAL, timeout_ms, "COLL_TIMEOUT_MS", "30000", "a peer that answers nothing for this long is an error")
ROW(INT, LOCAL, arrival_timeout_ms, "COLL_ARRIVAL_TIMEOUT_MS", "600000",
    "a live peer that does not enter the call for this long is an error")
ROW(INT, LOCAL, create_timeout_ms, "COLL_CREATE_TIMEOUT_MS", "60000", "creation must finish within this time")
ROW(TEXT, LOCAL, debug, "COLL_DEBUG", "warn", "log level: error, warn, info, debug")
ROW(TEXT, LOCAL, log_file, "COLL_LOG_FILE", "",
    "append log lines to this file; %r is the rank, %p the process, %h the host")
ROW(TEXT, LOCAL, dump_file, "COLL_DUMP_FILE", "",
    "append dumps of the flight recorder to this file; %r, %p, %h as above (empty: log the last operations)")
ROW(TEXT, LOCAL, dump_signal, "COLL_DUMP_SIGNAL", "usr1",
    "a dump of the flight recorder at this signal, unless the program handles it: usr1, usr2 or none")
ROW(INT, LOCAL, warn_ms, "COLL_WARN_MS", "30000",
    "warn when a live peer has kept a call waiting for this long; 0: never")
ROW(TEXT, AGREED, algo, "COLL_ALGO", "",
    "force algorithms: ring, or all_reduce:ring,broadcast:binomial; native: what is chosen where none is forced "
    "(all_reduce:native,ring)")
ROW(TEXT, AGREED, transports, "COLL_TRANSPORTS", "",
    "transports to use, in order of preference: shm,tcp (all when empty)")
ROW(TEXT, LOCAL, host_id, "COLL_HOST_ID", "", "ranks with the same text count as one host (default: found)")
ROW(SIZE, AGREED, slot_bytes, "COLL_SLOT_BYTES", "0",
    "largest frame; 0: chosen by transport and path, within the memory budget")
ROW(INT, AGREED, slots, "COLL_SLOTS", "0", "slots per channel, 2 to 256; 0: the transport's choice")
ROW(INT, AGREED, windows, "COLL_WINDOWS", "0", "most tiles in flight; 0: chosen by the cost model")
ROW(SIZE, AGREED, memory_budget, "COLL_MEMORY_BUDGET", "256M", "bound for channel slots and scratch, per rank")
ROW(BOOL, AGREED, intra, "COLL_INTRA", "1",
    "operations of ranks on one host go through memory that all of them map: small ones of up to 16 ranks, most of 17 "
    "to 128; 0: plans for all")
ROW(SIZE, AGREED, intra_bytes, "COLL_INTRA_BYTES", "64K",
    "the longest message of those; each communicator that uses them has a little more than twice this per rank, at "
    "most 1M")
ROW(BOOL, AGREED, verify, "COLL_VERIFY", "0", "verify every new plan before it runs, up to 64 ranks")
ROW(BOOL, LOCAL, service, "COLL_SERVICE_THREAD", "1",
    "run the service thread (without it a dead or silent peer is noticed late)")
ROW(TEXT, LOCAL, progress, "COLL_PROGRESS", "auto",
    "a progress thread for asynchronous work: on, off, or auto (off when ranks exceed cores)")
ROW(INT, LOCAL, spin_us, "COLL_SPIN_US", "50",
    "how long a wait polls before it sleeps (yielding the core meanwhile when ranks exceed cores)")
ROW(TEXT, AGREED, shm_copy, "COLL_SHM_COPY", "auto",
    "how long messages move in shared memory: auto (as is measured to be quickest), cached (slots, through the "
    "caches), streamed (slots, past them), cma (read by the kernel, where it may)")
ROW(TEXT, LOCAL, isa, "COLL_ISA", "", "force the reduction kernels: scalar, avx2, avx512")
ROW(TEXT, LOCAL, hook, "COLL_HOOK", "", "fault injection, for tests: see docs/guide/environment.md")
ROW(TEXT, LOCAL, root, "COLL_ROOT", "", "rendezvous address host:port of rank 0")
ROW(INT, LOCAL, rank, "COLL_RANK", "-1", "this process's rank (explicit launch)")
ROW(INT, LOCAL, size, "COLL_SIZE", "0", "number of ranks (explicit launch)")
ROW(INT, LOCAL, local_rank, "COLL_LOCAL_RANK", "-1", "rank among the ranks of this host (explicit launch)")
ROW(INT, LOCAL, local_size, "COLL_LOCAL_SIZE", "-1", "number of ranks of this host (explicit launch)")
ROW(TEXT, LOCAL, job_key, "COLL_JOB_KEY", "",
    "shared secret of the job, 32 hexadecimal digits; connections without it are refused")
ROW(TEXT, LOCAL, interface, "COLL_INTERFACE", "",
    "network interfaces to use: eth0,eth1 or ^docker0 to exclude (default: by route)")
ROW(TEXT, LOCAL, port_range, "COLL_PORT_RANGE", "",
    "listen on ports first-last, a few for each rank; empty: any free port")
ROW(TEXT, LOCAL, tcp_congestion, "COLL_TCP_CONGESTION", "",
    "congestion control of data sockets; empty: not paced on one host, else the system's")
ROW(TEXT, AGREED, tcp_sockets, "COLL_TCP_SOCKETS", "auto",
    "sockets of a link, 1 to 8, or auto: one for each pair of equally fast interfaces of two hosts, else one")
ROW(SIZE, LOCAL, tcp_buffer, "COLL_TCP_BUFFER", "0",
    "buffers of each data socket, below 1G; 0: the system sizes them by the path")
ROW(TEXT, LOCAL, rdma_device, "COLL_RDMA_DEVICE", "",
    "RDMA devices or ports to use: mlx5_0,rxe0:1 (default: the first active port with an address)")
ROW(TEXT, LOCAL, rdma_gid_index, "COLL_RDMA_GID_INDEX", "",
    "GID of the RDMA port to use (default: that of its first address)")
ROW(INT, LOCAL, rdma_traffic_class, "COLL_RDMA_TRAFFIC_CLASS", "0", "traffic class of RDMA connections, 0 to 255")
ROW(INT, LOCAL, rdma_timeout, "COLL_RDMA_TIMEOUT", "14",
    "an RDMA acknowledgement is awaited for 4.096 us times 2 to this power, 0 to 31; at most 14 where a lost host must "
    "be noticed within 2 s")
ROW(INT, LOCAL, rdma_retry, "COLL_RDMA_RETRY", "6",
    "how often an RDMA device sends again before the link is broken, 0 to 7 (soft-RoCE takes 7 for ever)")
ROW(INT, LOCAL, rdma_immediate, "COLL_RDMA_IMMEDIATE", "-1",
    "1: a frame's arrival is told by an RDMA immediate; 0: by a message behind it; -1: as the device can")
ROW(INT, LOCAL, rdma_polled, "COLL_RDMA_POLLED", "1",
    "1: small frames are seen in their slots; 0: only their completions count")
ROW(TEXT, LOCAL, rdma_message_max, "COLL_RDMA_MESSAGE_MAX", "",
    "bytes of one RDMA message; longer frames are split (default: the limit of the port)")
