// SPDX-License-Identifier: Apache-2.0
// What the engine can be told before it starts. Names, defaults and meanings come from the one settings
// table in horovod/common/config.py; this struct only holds the values the engine acts on.
#pragma once

#include <cstdint>
#include <string>

namespace hvd {

struct Settings {
  int64_t fusion_threshold = 128 << 20;
  double cycle_time = 0;  // ms; 0: no minimum wait
  int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;
  bool stall_check_disable = false;
  double stall_check_time_seconds = 60;
  double stall_shutdown_time_seconds = 0;  // 0: never
  double network_timeout_seconds = 30;     // so long another host may be silent
  std::string timeline;                    // a path, "DYNAMIC", or empty
  bool timeline_mark_cycles = false;
  int64_t timeline_max_bytes = 256 << 20;  // of a rank's file; 0: no limit
  std::string nvtx_library;                // a path: collectives are NVTX ranges; empty: they are not
  std::string flight_recorder;             // where a failing or stalling job puts its last collectives; empty: nowhere
  std::string log_level = "warning";
  bool log_hide_time = false;
  std::string cpu_operations;  // "mpi": inter-host data over MPI; else sockets
  std::string thread_affinity;
  std::string gpu_operations = "auto";        // auto, NCCL, direct or host
  int64_t num_nccl_streams = 0;               // communicators of a set; 0: as many as pay
  int64_t gpu_direct_bytes = 1 << 20;         // where both ways are there: batches up to this go the direct way
  std::string cuda_library = "libcuda.so.1";  // where the driver is found
  std::string nccl_library;                   // a path; empty: where the dynamic linker finds it
  int64_t shm_slot_bytes = 1 << 20;           // one staging buffer of a rank, e.g. 1 MiB
  int64_t chunk_bytes = 0;                    // pieces that large batches are cut into; 0: chosen by the engine
  int64_t small_bytes = 16 << 10;             // up to this size a reduction takes one round instead of two
  int64_t output_pool_bytes = 256 << 20;      // unused memory that is kept for outputs
  double spin_us = -1;                        // -1: chosen by the number of ranks and cores
  std::string link_security = "control";      // what is sealed between hosts: see net/link_security.h
  std::string crypto_library;                 // path of libcrypto; empty: found
  bool autotune = false;                      // see control/tuner.h
  std::string autotune_log;                   // a path, or empty
  std::string autotune_output;                // a path, or empty
  std::string autotune_start;                 // "fusion_threshold=1,spin_us=50"
  std::string autotune_fixed;                 // "fusion_threshold,log_level": what the user set
  int64_t autotune_warmup_samples = 3;
  int64_t autotune_steps_per_sample = 10;
  int64_t autotune_bayes_opt_max_samples = 20;
  double autotune_gaussian_process_noise = 0.8;

  // Sets one by its name. Returns "", or why it cannot be; the value then stays what it was.
  std::string set(const std::string& name, const std::string& value);
};

}  // namespace hvd
