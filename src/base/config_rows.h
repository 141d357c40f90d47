/*
 * Every setting of the library, one row each. The environment, the file named by
 * COLL_CONFIG_FILE, coll_config.settings and coll-info all use these rows.
 *
 *   ROW(kind, scope, member, name, default, help)
 *
 * kind: INT (int), SIZE (size_t, with K M G suffixes), BOOL (bool), TEXT
 * (char[COLL_TEXT_MAX]). AGREED rows must be equal on all ranks (values are
 * compared at creation); LOCAL rows may differ.
 */
ROW(INT, LOCAL, timeout_ms, "COLL_TIMEOUT_MS", "30000", "a peer that does not answer for this long is an error")
ROW(INT, LOCAL, arrival_timeout_ms, "COLL_ARRIVAL_TIMEOUT_MS", "600000",
    "a live peer that does not enter the call for this long is an error")
ROW(INT, LOCAL, create_timeout_ms, "COLL_CREATE_TIMEOUT_MS", "60000", "creation must finish within this time")
ROW(TEXT, LOCAL, debug, "COLL_DEBUG", "warn", "log level: error, warn, info, debug")
ROW(TEXT, LOCAL, log_file, "COLL_LOG_FILE", "",
    "append log lines to this file; %r is the rank, %p the process, %h the host")
ROW(TEXT, LOCAL, dump_file, "COLL_DUMP_FILE", "",
    "append dumps of the flight recorder to this file; %r, %p, %h as above (empty: log the last operations)")
ROW(TEXT, LOCAL, dump_signal, "COLL_DUMP_SIGNAL", "usr1",
    "write a dump of the flight recorder at this signal, unless the program handles it: usr1, usr2 or none")
ROW(INT, LOCAL, warn_ms, "COLL_WARN_MS", "30000",
    "warn when a live peer has kept a call waiting for this long; 0: never")
ROW(TEXT, AGREED, algo, "COLL_ALGO", "",
    "force algorithms: ring for all collectives, or all_reduce:ring,broadcast:binomial; auto: the choice of the cost "
    "model (all_reduce:auto,ring)")
ROW(TEXT, AGREED, layout, "COLL_LAYOUT", "auto",
    "auto: plans follow the hosts on which the ranks are; flat: plans take no notice of them")
ROW(TEXT, AGREED, levels, "COLL_LEVELS", "auto",
    "auto: hosts, and the levels inside them that are expected to pay; else these levels and no others, from the "
    "outside to the inside: site,host,package,numa,l3")
ROW(TEXT, LOCAL, site, "COLL_SITE", "",
    "hosts with the same text share a site, such as a rack: plans send the least from one site to another; all hosts "
    "have one, or none")
ROW(INT, LOCAL, site_rate, "COLL_SITE_RATE", "0",
    "rate in Mb/s of the uplink that the hosts of this site share; 0: unknown, which is never slow; all ranks of a "
    "site give the same")
ROW(TEXT, AGREED, transports, "COLL_TRANSPORTS", "",
    "transports to use, in order of preference: shm,tcp (all when empty)")
ROW(TEXT, LOCAL, host_id, "COLL_HOST_ID", "",
    "ranks with the same text count as one host (default: determined by the library)")
ROW(SIZE, AGREED, slot_bytes, "COLL_SLOT_BYTES", "0",
    "largest frame; 0: chosen by transport and path, within the memory budget")
ROW(INT, AGREED, slots, "COLL_SLOTS", "0", "slots per channel, 2 to 256; 0: the transport's choice")
ROW(INT, AGREED, windows, "COLL_WINDOWS", "0", "most tiles in flight; 0: chosen by the cost model")
ROW(SIZE, AGREED, memory_budget, "COLL_MEMORY_BUDGET", "256M", "upper limit of channel slots and scratch, per rank")
ROW(BOOL, AGREED, intra, "COLL_INTRA", "1",
    "1: collectives within one host use memory that all its ranks map, short ones up to 16 ranks, most from 17 to 256; "
    "0: plans for all")
ROW(SIZE, AGREED, intra_bytes, "COLL_INTRA_BYTES", "64K",
    "longest message that uses memory mapped by all ranks of a host, at most 1M; such a communicator reserves a little "
    "more than twice this per rank")
ROW(BOOL, AGREED, verify, "COLL_VERIFY", "0", "verify every new plan before it runs, up to 64 ranks")
ROW(BOOL, LOCAL, service, "COLL_SERVICE_THREAD", "1",
    "run the service thread (without it a dead or silent peer is noticed late)")
ROW(TEXT, LOCAL, progress, "COLL_PROGRESS", "auto",
    "progress thread for asynchronous work: on, off, or auto (off when ranks exceed cores)")
ROW(INT, LOCAL, spin_us, "COLL_SPIN_US", "50",
    "time a wait polls before it sleeps (it yields the core meanwhile when ranks exceed cores)")
ROW(TEXT, AGREED, shm_copy, "COLL_SHM_COPY", "auto",
    "copies of long messages in shared memory: auto (the fastest as measured), cached (slots, cached stores), streamed "
    "(slots, non-temporal stores), cma (read by the kernel, where permitted)")
ROW(TEXT, LOCAL, device, "COLL_DEVICE", "host",
    "device of this rank: host (none), cuda (by the local rank), cuda:2, or for coll_comm_create_all() a list: "
    "cuda:0,1,2,3")
ROW(BOOL, AGREED, device_direct, "COLL_DEVICE_DIRECT", "1",
    "1: ranks of one host whose devices map each other's memory do not pass device data through host memory; 0: they "
    "do")
ROW(TEXT, LOCAL, cuda_library, "COLL_CUDA_LIBRARY", "", "file of the CUDA driver (default: libcuda.so.1)")
ROW(TEXT, LOCAL, isa, "COLL_ISA", "", "force the reduction kernels: scalar, avx2, avx512")
ROW(INT, AGREED, test_cores, "COLL_TEST_CORES", "0",
    "for tests: every machine counts as one with so many cores, whatever it has; 0: as found")
ROW(TEXT, LOCAL, hook, "COLL_HOOK", "", "fault injection, for tests: see docs/guide/environment.md")
ROW(TEXT, LOCAL, root, "COLL_ROOT", "", "rendezvous address host:port of rank 0")
ROW(INT, LOCAL, rank, "COLL_RANK", "-1", "rank of this process (explicit launch)")
ROW(INT, LOCAL, size, "COLL_SIZE", "0", "number of ranks (explicit launch)")
ROW(INT, LOCAL, local_rank, "COLL_LOCAL_RANK", "-1", "rank among the ranks of this host (explicit launch)")
ROW(INT, LOCAL, local_size, "COLL_LOCAL_SIZE", "-1", "number of ranks of this host (explicit launch)")
ROW(TEXT, LOCAL, job_key, "COLL_JOB_KEY", "",
    "shared secret of the job, 32 hexadecimal digits; connections without it are refused")
ROW(TEXT, LOCAL, interface, "COLL_INTERFACE", "",
    "network interfaces to use: eth0,eth1 or ^docker0 to exclude (default: by route)")
ROW(TEXT, LOCAL, link_rates, "COLL_LINK_RATES", "",
    "rates of links of this host in Mb/s, instead of what the system reports: eth0:1000,eth1:250")
ROW(TEXT, LOCAL, port_range, "COLL_PORT_RANGE", "",
    "listen on ports first-last, a few for each rank; empty: any free port")
ROW(TEXT, LOCAL, tcp_congestion, "COLL_TCP_CONGESTION", "",
    "congestion control of data sockets; empty: one without pacing within a host, else that of the system")
ROW(TEXT, AGREED, tcp_sockets, "COLL_TCP_SOCKETS", "auto",
    "sockets per link, 1 to 8, or auto: as the rates of the interfaces that two hosts share ask for, else one")
ROW(SIZE, LOCAL, tcp_buffer, "COLL_TCP_BUFFER", "0",
    "buffer size of each data socket, below 1G; 0: the system chooses it for each path")
ROW(TEXT, LOCAL, rdma_device, "COLL_RDMA_DEVICE", "",
    "RDMA devices or ports to use: mlx5_0,rxe0:1 (default: all active ports with an address)")
ROW(TEXT, LOCAL, rdma_gid_index, "COLL_RDMA_GID_INDEX", "",
    "index of the GID to use of each RDMA port (default: the GID of its first address)")
ROW(INT, LOCAL, rdma_traffic_class, "COLL_RDMA_TRAFFIC_CLASS", "0", "traffic class of RDMA connections, 0 to 255")
ROW(INT, LOCAL, rdma_timeout, "COLL_RDMA_TIMEOUT", "14",
    "RDMA acknowledgement timeout, 4.096 us times 2 to this power, 0 to 31; use at most 14 if a lost host must be "
    "noticed within 2 s")
ROW(INT, LOCAL, rdma_retry, "COLL_RDMA_RETRY", "6",
    "number of times an RDMA device resends before the link breaks, 0 to 7 (soft-RoCE retries without end at 7)")
ROW(INT, LOCAL, rdma_immediate, "COLL_RDMA_IMMEDIATE", "-1",
    "1: an RDMA immediate announces a frame; 0: a message after the frame does; -1: whichever the device supports")
ROW(INT, LOCAL, rdma_polled, "COLL_RDMA_POLLED", "1",
    "1: small frames are detected by polling their slots; 0: by their completions only")
ROW(TEXT, LOCAL, rdma_message_max, "COLL_RDMA_MESSAGE_MAX", "",
    "largest RDMA message in bytes; longer frames are split (default: the limit of the port)")
