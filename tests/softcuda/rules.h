/*
 * The rules of the real driver that the stand-in imitates: R(name, text). Each has a test
 * of its name in softcuda_test, and a planted mistake (SOFTCUDA_PLANT=name) that turns the
 * test red. docs/design/softcuda.md gives the source of each rule.
 */
#ifndef SOFTCUDA_RULES_H
#define SOFTCUDA_RULES_H

/* clang-format off */
#define SOFT_RULES(R) \
	R(visible_devices, "CUDA_VISIBLE_DEVICES selects and orders devices; an entry that names none ends the list") \
	R(driver_version, "cuGetProcAddress gives nothing that is newer than the driver or than the version asked for") \
	R(missing, "a function named in SOFTCUDA_MISSING cannot be had") \
	R(counts, "each call of an entry point is counted, and written to SOFTCUDA_COUNTS at exit") \
	R(no_fork, "after fork a child of an initialised process gets 3 from every call") \
	R(no_context, "calls that need a context get 201 without a current one") \
	R(context_end, "the end of a context returns its memory and its registrations") \
	R(fifo, "the work of a stream runs in the order of enqueueing") \
	R(async, "an enqueueing call returns before its work has run") \
	R(legacy, "the NULL stream and blocking streams of its context wait for each other; non-blocking ones do not") \
	R(shared_queue, "streams are assigned to the hardware queues of their device; a pending wait blocks its whole queue") \
	R(own_queue, "streams on different hardware queues do not wait for each other") \
	R(queue_depth, "an enqueueing call waits while its queue is full") \
	R(lazy_launch, "the first launch of a kernel waits until all streams of the context are empty, and other calls wait for it") \
	R(stream_create, "creating a stream waits until all streams of the context are empty") \
	R(free_waits, "cuMemFree waits until all streams of the context are empty") \
	R(pageable_copy, "a copy from or to unregistered host memory returns when it is done") \
	R(registered_copy, "a copy between registered and device memory returns at once") \
	R(launch_blocking, "with CUDA_LAUNCH_BLOCKING=1 a launch returns when the kernel is done") \
	R(untouchable, "the CPU cannot touch device memory") \
	R(wild, "a kernel that touches no memory of its device ends with 700") \
	R(guard, "a kernel that touches the byte behind a block ends with 700") \
	R(freed, "a kernel that touches freed memory ends with 700") \
	R(misaligned, "a kernel that loads from an address that is not a multiple of the size ends with 716") \
	R(other_device, "a kernel that touches memory of another device without peer access ends with 700") \
	R(sticky, "after a fault every call of the context gets the same error") \
	R(other_context, "a fault in one context leaves the others alive") \
	R(sticky_drains, "after a fault pending waits end, and work behind them does not run") \
	R(no_callback, "after a fault host functions are not called") \
	R(callback_calls, "a host function that calls the driver gets 800") \
	R(launch_sizes, "a launch with an impossible size gets 1") \
	R(mixed_contexts, "a stream, event or kernel of another context gets 400") \
	R(copy_range, "a copy that does not lie in live memory is refused at once") \
	R(wait_cyclic, "a wait compares cyclically") \
	R(wait_flags, "EQ, AND and NOR waits") \
	R(memop_aligned, "words of memory operations are aligned to their size") \
	R(memop_memory, "words of memory operations lie in device or registered memory; not in managed memory") \
	R(memop_batch, "a batch has at most 255 operations, which run in order") \
	R(events, "an event is done when the work before its record is done; 600 until then; done if never recorded") \
	R(wait_event, "a stream waits for the record that was the last one when it was told to wait") \
	R(attributes, "unregistered host memory has the memory type 0; registered, device and managed memory have theirs; mapped memory has no context") \
	R(address_range, "addresses within a block give its base and length") \
	R(host_pointer, "a device pointer of host memory needs registration with DEVICEMAP; twice registered is 712, never is 713") \
	R(poison, "new device memory and shared memory of a block hold garbage") \
	R(block_order, "barriers hold for all threads of a block") \
	R(module_entries, "a module has the kernels that its PTX has") \
	R(unloaded, "a graph that launches a kernel of an unloaded module ends with 700") \
	R(ptx_version, "PTX that is newer than the driver is 222") \
	R(vmm_access, "mapped memory needs access for the device that touches it") \
	R(vmm_rules, "memory is mapped whole, once, into a reservation; what is mapped cannot be returned") \
	R(vmm_lives, "memory lives while a handle, a mapping or an importer has it") \
	R(vmm_export, "a descriptor is given only for memory created for it") \
	R(ipc_self, "a legacy handle cannot be opened by its own process: 201") \
	R(ipc_base, "a legacy handle opens at the base of the block") \
	R(ipc_legacy_only, "only cuMemAlloc memory has legacy handles") \
	R(ipc_refcount, "a handle opened twice gives the same address, until closed twice") \
	R(ipc_one_context, "one context per device may open handles of a process") \
	R(ipc_freed, "a mapping of memory that its owner has freed faults") \
	R(ipc_dead_owner, "a mapping outlives a killed owner") \
	R(ipc_namespace, "legacy handles do not open in another PID namespace") \
	R(capture_records, "captured work runs at each launch of the graph, with the arguments of the capture") \
	R(capture_joins, "an event carries the capture to another stream, which must be joined again: 904") \
	R(capture_isolated, "waiting for an event from outside of the capture is 905") \
	R(capture_query, "query or synchronisation of a capturing stream is 900 and ends the capture") \
	R(capture_event, "query of a captured event is 907") \
	R(capture_legacy, "the NULL stream cannot be captured, and use of it during a capture is 906") \
	R(capture_unsafe, "allocation, and making an executable of a graph, during a capture is 900 and ends the capture, unless the thread is in relaxed mode") \
	R(capture_thread, "a capture ends in its thread, on its stream") \
	R(capture_dead, "a capture that has ended by a wrong call gives 901 and no graph") \
	R(graph_external, "a graph records an external event at each launch, and waits for the record that was the last one then") \
	R(graph_serial, "launches of one graph run one after another") \
	R(graph_branches, "branches of a graph do not wait for each other") \
	R(user_object, "a user object is destroyed after the graph and its executables have gone, in another thread")
/* clang-format on */

#define SOFT_RULE_ENUM(name, text) RULE_##name,
enum soft_rule { SOFT_RULES(SOFT_RULE_ENUM) RULE_COUNT };
#undef SOFT_RULE_ENUM

#endif
