// SPDX-License-Identifier: Apache-2.0
// Room for blocks that spin, on a GPU that several processes of a user share under MPS.
//
// A block that spins keeps its place on the GPU until its like of the other ranks have come. If jobs took more places
// together than there are for it (choose.h), each could keep those that the others' kernels wait for, for ever. So
// places are claimed first: bytes of a file of that GPU which a process locks, and which are free again however it
// ends.
#pragma once

#include <set>
#include <string>

#include "paths/cuda/driver_abi.h"
#include "util/fd.h"

namespace hvd::cuda {

class Room {
 public:
  // folder: where all that share the GPU look; MPS has one.
  explicit Room(const Uuid& gpu, const std::string& folder = shared_folder());
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Claims what is missing to `wanted` of `all` places, as far as there are free ones, and keeps what it has. Returns
  // how many that are; where no file can be had, `wanted`: then nobody counts.
  int claim(int wanted, int all);
  // What a forked child must close, or -1: it would keep the places.
  int descriptor() const { return file_.get(); }

  static std::string shared_folder();

 private:
  // Opens the file and holds its gate; false: it cannot be had.
  bool enter();

  const std::string path_;
  UniqueFd file_;
  std::set<int> held_;
};

}  // namespace hvd::cuda
