/*
 * Every delay of the library: one row each. No other file of src/, transports/ and topology/ defines
 * one (tests/headers/delays.py). delay.h turns the rows into constants and checks the sums
 * that the promises need.
 *
 *   ROW(name, milliseconds, bound, why)
 *
 * bound: the promise that limits the delay.
 *   DEATH    a process that certainly ended is an error in less than 2 s
 *   UNREACHABLE  a host out of reach is an error within 1 s after COLL_UNREACHABLE_MS
 *   TIMEOUT  silence and lateness: the delay is short beside COLL_TIMEOUT_MS
 *   CREATE   creation ends within COLL_CREATE_TIMEOUT_MS
 *   RETURN   how long a call, a failure or the end of a communicator keeps its caller
 *   STRANGER a connection that has not proved itself holds a place for no longer
 *   PACE     how often something is looked at, said or tried again; no verdict waits for one alone
 */

/* Creation: src/bootstrap, topology. */
ROW(BIND_AGAIN, 20, PACE, "between tries to bind a port that an earlier job is just leaving")
ROW(BIND, 3000, CREATE, "to get the port of rank 0")
ROW(PORT_OWNER, 2000, CREATE, "to find out whether this job itself holds the port of rank 0")
ROW(PORT_OWNER_AGAIN, 10, PACE, "a port refuses between its bind and its listen")
ROW(PORT_OWNER_LOOK, 20, PACE, "between looks at that connection")
ROW(KERNELS_READY, 30000, CREATE, "for first launches of device kernels to end, behind what the program runs there")
ROW(KERNELS_LOOK, 1, PACE, "between looks whether they have ended")
ROW(KEY_FD, 10000, CREATE, "for the next bytes, or the end, of a key on a descriptor (COLL_KEY_FD)")
ROW(RESOLVE_AGAIN, 200, PACE, "names of hosts that are just starting appear late")
ROW(ROOT_PAUSE_MIN, 5, PACE, "first pause between tries to reach rank 0, which may not be there yet")
ROW(ROOT_PAUSE_MAX, 200, PACE, "longest such pause")
ROW(ROOT_TRY, 2000, CREATE, "to connect to rank 0 and greet it")
ROW(ROOT_SHORTAGE, 1000, CREATE, "without a descriptor for a connection to rank 0: others may be closed meanwhile")
ROW(ROOT_TRY_NEXT, 50, PACE, "until the next candidate port is tried beside one that does not answer")
ROW(ROOT_TRY_PORT, 700, CREATE, "to read munge's credential at a candidate port, where strangers may listen")
ROW(RENDEZVOUS_PROOF, 3000, STRANGER, "until a newcomer has proved that it has the key")
ROW(RENDEZVOUS_REGISTER, 20000, STRANGER, "until it has said which rank it is, with the peer info of a large job")
ROW(RENDEZVOUS_ATTACH, 3000, CREATE, "until a child whose parent cannot be reached asks rank 0 for another")
ROW(RENDEZVOUS_FAREWELL, 1000, CREATE, "to send the error of a failed rendezvous to those who wait")
ROW(RENDEZVOUS_TELL, 1000, CREATE, "to tell rank 0, which may not be there yet, that this rank cannot create")
ROW(RENDEZVOUS_LATE, 1000, CREATE, "to answer those who come after it has failed")
ROW(RENDEZVOUS_NOTICE, 1000, PACE, "between notices to waiting ranks of who is missing")
ROW(DIGEST_WAIT, 5000, CREATE, "for another process of the host that reads its topology; then each reads it itself")
ROW(DIGEST_LOOK, 1, PACE, "between looks whether it has")
ROW(RENDEZVOUS_LISTEN_AGAIN, 20, PACE, "without a descriptor for a newcomer")

/* Devices: src/devcall/stage.c. */
ROW(PEERS_DRAIN, 1000, RETURN, "for devices of other ranks to leave the user's memory after a call has failed")
ROW(DEVICE_DRAIN, 2000, RETURN, "for a device to leave the memory of a call that has failed")
ROW(DEVICE_NAPS, 1, PACE, "for 20 looks at the words of a device, which wakes nobody up, of an idle wait")
ROW(DEVICE_LOOK, 50, PACE, "between questions to the driver whether the device has failed")

/* Control plane: src/control. */
ROW(CONTROL_HANDSHAKE, 1500, UNREACHABLE, "for one address to accept a control connection, then another is tried")
ROW(CONTROL_PROBE, 700, DEATH, "the same of the connection of a liveness check, which has LIVENESS in all")
ROW(CONTROL_STRANGER, 5000, STRANGER, "for an incoming control link to be proved")
ROW(CONTROL_LISTEN_AGAIN, 100, PACE, "without a descriptor for a control link")
ROW(CONTROL_KEEP_LINKS, 200, PACE, "between looks for neighbours without a link")
ROW(CONTROL_HELLO_MIN, 500, DEATH, "for a connection to a neighbour to be accepted; doubles with each failure")
ROW(CONTROL_HELLO_MAX, 8000, TIMEOUT, "longest such wait: a host with many ranks accepts slowly")
ROW(CONTROL_TELL, 1000, DEATH, "first moments of a job: a failing rank waits for links to its neighbours")
ROW(CONTROL_FLUSH_LOOK, 1, PACE, "between looks at links that have something left to send")
ROW(CONTROL_CLOSE, 100, RETURN, "at the end of a context: for the goodbyes to leave")
ROW(CONTROL_IDLE, 1000, PACE, "between looks of a service thread for which nothing is due")
ROW(CONTROL_IDLE_PROBE, 1000, UNREACHABLE, "idle control links: probe of the kernel; whole seconds")
ROW(RETRANSMIT_LEAST, 1000, UNREACHABLE, "between two tries of TCP to send again: the kernel accepts no lower limit")
ROW(RETRANSMIT_MOST, 120000, UNREACHABLE, "the same: and no higher one")
ROW(KEEPALIVE, 200, UNREACHABLE,
    "between keepalives on an idle control link, so that lost packets are sent again in time")
ROW(KEEPALIVE_SILENT, 3000, PACE, "no keepalive to a process that has said nothing for so long: its buffer would fill")
ROW(HOST_SILENT, 600, PACE,
    "without a message from a host to which a data link is silent: a control link to it is made")
ROW(LIVENESS, 1000, DEATH, "for an answer of a process whose link ended; only then it counts as left or silent")
ROW(LIVENESS_UNREACHED, 200, UNREACHABLE, "the same if its host stopped acknowledging, which took COLL_UNREACHABLE_MS")
ROW(LIVENESS_RECONNECT, 20, PACE, "between connections of a liveness check")
ROW(LAST_ERROR, 5000, PACE, "an error of a process from so long before does not explain that it ended")
ROW(GOES_ON, 500, PACE, "a call so long after an error shows that the process does not end because of it")
ROW(PING, 250, TIMEOUT, "between pings to a rank that a call waits for")
ROW(PING_KEPT, 1500, PACE, "a ping is repeated for so long after the last wait that asked for it")

/* Why a wait does not end: src/watch. */
ROW(PING_AFTER, 250, DEATH, "a wait that has not moved for so long asks the rank it waits for")
ROW(SETTLE, 100, DEATH, "before a death is reported: for the note of a better informed rank")
ROW(CAUSE, 1200, DEATH, "a run ended with its link: for the note of the cause, which may take LIVENESS")
ROW(CAUSE_UNREACHED, 500, UNREACHABLE, "the same if tcp found the host unreachable, which took COLL_UNREACHABLE_MS")
ROW(CAUSE_QUESTION, 1200, TIMEOUT, "for the sender of a frame of another call to say what it called")
ROW(LEFT, 1000, TIMEOUT, "since the goodbye of a rank that a call waits for")
ROW(CHAIN, 3000, TIMEOUT, "before a warning: for the ranks that a late rank waits for to say why")
ROW(LATE_TURN, 300, TIMEOUT, "before an error about a late rank: for some other ranks to say whether they are late too")
ROW(LATE_ALL, 1000, TIMEOUT, "for all of them: of the largest jobs some are not asked")
ROW(CHAIN_FRESH, 2000, TIMEOUT, "an answer of such a rank that is older counts for nothing")
ROW(OTHER_COMM, 2000, PACE, "before a line about a rank that waits in another communicator")
ROW(DEADLOCK_UNMOVED, 1000, TIMEOUT, "every rank of a cycle has not moved for so long")
ROW(DEADLOCK_FRESH, 400, TIMEOUT, "and its answer is no older")
ROW(DEADLOCK_AGE, 200, TIMEOUT, "and what the answer shows was seen no longer ago")

/* Members: src/members. */
ROW(SUSPECT, 3000, TIMEOUT, "for a member to answer when the members are decided anew; then they go on without it")
ROW(MEMBERS_BALLOT, 100, PACE, "least pause before a ballot; doubles with each that a member gave up, up to 8 times")
ROW(MEMBERS_LOOK, 1, PACE, "between looks of a call that waits for such a decision")

/* Calls and communicators. */
ROW(TAG_WAKE, 100, PACE, "between wake requests to a rank that has no channel for tagged messages yet")
ROW(WAIT_GOES_ON, 1000, TIMEOUT, "since the last wait for a receive: the next one goes on with its deadlines")
ROW(FAILURE_FLUSH, 100, RETURN, "the first rank that reports a failure, or aborts: for its note to leave")
ROW(FIRST_FINDER, 500, RETURN, "a rank that found a failure, before it logs it: for who found it first to be known")
ROW(DESTROY, 3000, RETURN, "for the slowest rank to enter destroy")
ROW(DESTROY_PARTED, 1000, RETURN, "the same behind a lost communicator, or while a host is out of reach")
ROW(DESTROY_STAY, 20, RETURN, "of it in destroy itself, if other communicators of the job are alive")
ROW(DESTROY_LOOK, 5, PACE, "between looks meanwhile")
ROW(NAP_SHORT, 5, PACE, "longest sleep of a wait that was woken lately; a wake-up ends it")
ROW(NAP_LONG, 50, PACE, "longest sleep of other waits; deadlines have 250 ms and more")
ROW(NAP_LONG_AFTER, 100, PACE, "without a movement, from then on sleeps are long")
ROW(OTHER_JOBS, 1000, PACE, "between looks for other jobs that share the cores")
ROW(YIELD_SLICE, 2, PACE, "a yield that lasts so long, per rank of the core, let another process compute")
ROW(CROWD_LOOK, 1, PACE, "between looks of a thread whether others want its core")
ROW(CROWD_MIN, 4, PACE, "waits sleep at once for so long after others wanted the core")
ROW(CROWD_MAX, 500, PACE, "the same when they have wanted it again and again")
ROW(SERVICE_BLIND, 2, PACE, "between rounds of a service thread that cannot poll()")
ROW(FAULT_LOOK, 1, PACE, "between looks of a wait that inquires into a fault")
ROW(INTERRUPT, 40, PACE, "between questions to the hook of coll_config; with NAP_LONG below the 100 ms promised")
ROW(MESSAGE_TURN, 1000, PACE, "of many pending messages, the watchdog looks at others after so long")
ROW(SLEEP_TURN, 1, PACE, "longest sleep of a thread that drives for others")
ROW(TAKE_OVER, 1, PACE, "longest time that the progress thread leaves a new call to its caller")
ROW(THREAD_NAP, 50, PACE, "longest sleep of the progress thread; deadlines have 250 ms and more")
ROW(INSPECT_CLIENT, 5000, STRANGER, "for a client of the inspector to ask and to read")
ROW(JOB_STATE_ANSWER, 900, STRANGER, "for a process to tell an inspector what holds it up")
ROW(JOB_STATE, 2500, STRANGER, "for all of them: of the largest jobs some are not asked")
ROW(DUMP_BLAMED, 1000, PACE, "for a rank that others blame, and that is in a call, to fail and write its dump itself")
ROW(SLOW_LOOK, 2000, PACE, "between looks who is far behind; a verdict takes four")
ROW(SLOW_ANSWER, 1000, PACE, "for others to say how long they have waited; then those that have are enough")
ROW(SLOW_AGAIN, 600000, PACE, "until a rank or a link that stays slow is warned of again")
ROW(INSPECT_LISTEN_AGAIN, 1000, PACE, "without a descriptor for such a client")
ROW(ZERO_COPY_UNIT, 20, RETURN, "failure: for a peer to finish the unit it copies, before pages are taken back")

/* transports/common, loop, shm. */
ROW(REACTOR_SOON, 5, PACE, "between rounds of a service that was asked to come back soon")
ROW(LINK_FLUSH_LOOK, 1, PACE, "between looks at links that have something left to send")
ROW(LOOP_READER, 2000, RETURN, "for a thread that reads loaned memory, before the loan is revoked")
ROW(SHM_HANDSHAKE, 2000, STRANGER, "for a connection of shm to be proved")
ROW(SHM_NO_DESCRIPTOR, 1000, TIMEOUT, "without a descriptor to connect with; then the link fails")
ROW(SHM_SCARCE_LINE, 1000, PACE, "between lines about missing descriptors")
ROW(SHM_TICK, 20, PACE, "between looks at connections under way")
ROW(SHM_PUSH_CLAIM, 20, RETURN, "for a sender that fills memory of ours to end, before pages are taken back")

/* tcp. */
ROW(TCP_HANDSHAKE, 5000, STRANGER, "for an incoming connection to be proved")
ROW(TCP_CONNECT, 1900, UNREACHABLE, "for the only address of a process to accept a connection, then it is tried again")
ROW(TCP_CONNECT_FIRST, 600, UNREACHABLE, "the same of one address of several, first round")
ROW(TCP_NO_DESCRIPTOR, 1000, DEATH, "without a descriptor to connect with; then the link fails")
ROW(TCP_AGAIN, 30, PACE, "after BUSY, a handshake that the peer dropped, or a round in which no address accepted")
ROW(TCP_TICK_PENDING, 100, PACE, "between looks while something has a deadline")
ROW(TCP_TICK_REMOTE, 100, UNREACHABLE, "between looks while a link leaves this machine")
ROW(TCP_TICK_DEAF, 100, DEATH, "between looks while the service thread is not woken by some link")
ROW(TCP_RAIL_SILENT, 600, PACE,
    "data in flight on one rail of several and no acknowledgement: it goes over another that is heard")
ROW(TCP_RAIL_HEARD, 300, PACE, "without an acknowledgement, and still a rail that others may go over")
ROW(TCP_SETTLE, 1500, RETURN, "at the end of an instance: for what a lost rail was sent last to go over another one")
ROW(TCP_FINI, 90, RETURN, "at the end of an instance: for queued bytes to leave")

/* rdma. */
ROW(RDMA_RESOLVE, 1500, UNREACHABLE, "for an address or a route to be resolved")
ROW(RDMA_CONNECT, 800, UNREACHABLE, "a connection not made by then is tried again")
ROW(RDMA_AGAIN, 30, PACE, "before the next try")
ROW(RDMA_TICK, 200, UNREACHABLE, "an idle link is asked for a sign of life so often")
ROW(RDMA_MEND, 750, UNREACHABLE, "for a broken connection to be made again, however short COLL_UNREACHABLE_MS is")
ROW(RDMA_MEND_CONNECT, 200, UNREACHABLE, "for one such connection; then a rail of several tries the ports of another")
ROW(RDMA_RAIL_FIRST, 600, UNREACHABLE, "the same of a rail that was never connected")
ROW(RDMA_RAIL_SILENT, 600, UNREACHABLE, "without acknowledgement, while another rail has it, a rail is lost")
ROW(RDMA_CANCEL, 1000, RETURN, "for a peer to take its promise back; then it loses the link")
ROW(RDMA_LOANED, 4000, RETURN, "for a peer to give loaned memory back; then it loses the link")
ROW(RDMA_FLUSH, 100, RETURN, "for what a torn connection has received to be read")
ROW(RDMA_FINI, 90, RETURN, "at the end of an instance: for queued frames to leave")
ROW(NCCL_CREATE, 600000, CREATE, "of libnccl.so.2: programs of NCCL have limits of their own")
ROW(NCCL_ARRIVAL, 2000000000, TIMEOUT, "likewise: a rank that does not come is waited for")
ROW(NCCL_LOOK, 1, PACE, "between looks at a stream whose work must be done")
