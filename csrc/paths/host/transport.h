// SPDX-License-Identifier: Apache-2.0
// Bytes between hosts. The ranks of one column (one per host of a process set) stand in a ring; every
// algorithm between hosts is made of one step: send to the host 2^hop further on while receiving from the
// host 2^hop before. A new transport is one class with this one method.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/seal.h"
#include "util/fd.h"

namespace hvd {

struct Piece {
  char* data;
  size_t bytes;
};
using Pieces = std::vector<Piece>;

class Transport {
 public:
  virtual ~Transport() = default;
  // Both directions at once; returns when both are done. Either list may be empty. Sizes are known to both
  // sides, so nothing is framed. Throws JobAborted.
  virtual void exchange(int hop, const Pieces& out, const Pieces& in) = 0;
  // What a forked child must close.
  virtual std::vector<int> descriptors() const { return {}; }
};

// A socket that the bootstrap opened and authenticated.
struct DataLink {
  UniqueFd fd;
  std::unique_ptr<Seal> seal;  // null: bytes travel as they are
  std::string peer;            // "rank 3 on node7", for errors
};
// out[hop], in[hop]. `check` is called at least every 100 ms while waiting and throws when the job was aborted.
std::unique_ptr<Transport> make_tcp_transport(std::vector<DataLink> out, std::vector<DataLink> in,
                                              std::function<void()> check);

// The MPI that started this job, loaded at run time. ranks[h]: the column's global rank on host h; `me` its
// index. Throws Refused when no usable MPI is loaded. Defined in mpi_transport.cc.
std::unique_ptr<Transport> make_mpi_transport(int process_set, std::vector<int> column_ranks, int me,
                                              std::function<void()> check);

}  // namespace hvd
