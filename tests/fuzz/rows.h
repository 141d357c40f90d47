/* Every target: its name, which is that of its corpus, and its function. Included several times. */
#ifdef FUZZ_RDMA
TARGET("rdma", fuzz_rdma)
TARGET("rdma-checked", fuzz_rdma_checked)
#else
TARGET("settings", fuzz_settings)
TARGET("lists", fuzz_lists)
TARGET("nccl-xml", fuzz_nccl_xml)
TARGET("hwloc-xml", fuzz_hwloc_xml)
TARGET("digest", fuzz_digest)
TARGET("rendezvous-root", fuzz_rendezvous_root)
TARGET("rendezvous-host", fuzz_rendezvous_host)
TARGET("rendezvous-member", fuzz_rendezvous_member)
TARGET("unique-id", fuzz_unique_id)
TARGET("pmi", fuzz_pmi)
TARGET("dump", fuzz_dump)
TARGET("launch", fuzz_launch)
TARGET("hosts", fuzz_hosts)
TARGET("peer-info", fuzz_peer_info)
TARGET("record", fuzz_record)
TARGET("control", fuzz_control)
TARGET("members", fuzz_members)
TARGET("tcp", fuzz_tcp)
TARGET("tcp-checked", fuzz_tcp_checked)
TARGET("key", fuzz_key)
TARGET("shm", fuzz_shm)
#ifdef FUZZ_GPT
TARGET("checkpoint", fuzz_checkpoint)
#endif
#endif
