// SPDX-License-Identifier: Apache-2.0
// Collectives between the GPUs of a set's members, one GPU each, put on a stream. What a verb needs beyond them
// (fusion, casts, scaling of integers, Adasum) is written once above this, in verbs.cc.
//
//   alone.cc    a set of one
//   direct.cc   ranks of one host that map each other's memory
//   nccl_group.cc
//   staged.cc   through host memory and the host's data path
//
// All members make the same calls in the same order with the same sizes. The calls return when the work is enqueued
// (staged.cc: when it is done), and throw CudaError, NcclError or JobAborted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "paths/cuda/driver_abi.h"
#include "paths/cuda/element.h"

namespace hvd::cuda {

struct Reduce {
  int dtype;      // hvd_dtype of the elements as they travel
  int op;         // hvd_reduce_op: Sum, Min, Max or Product
  Scaling after;  // floating point only
};

class Group {
 public:
  explicit Group(int me, int n) : me(me), n(n) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const int me;
  const int n;
  virtual const char* name() const = 0;  // "NCCL", as settings and the log say it

  // The hvd_dtype in which elements of this type are reduced, where it is another.
  virtual int travels_as(int dtype) const { return dtype; }

  // Whether the work may be put on any stream, one call after the other; else on the set's own alone.
  virtual bool any_stream() const { return false; }

  // Calls between the two may be carried out together.
  virtual void begin() {}
  virtual void end() {}

  // Every pointer is 16-byte aligned here; in may equal out.
  virtual void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) = 0;
  // Member i's share is counts[i] elements at begins[i] of `in`; mine lands at the start of out.
  virtual void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                              const std::vector<size_t>& counts, Stream stream) = 0;

  // Any alignment. Member i's bytes[i] land at out + begins[i]; mine may be there already (in == out + begins[me]).
  virtual void all_gather(const void* in, char* out, const std::vector<size_t>& begins,
                          const std::vector<size_t>& bytes, Stream stream) = 0;
  virtual void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) = 0;
  // bytes[s * n + d]: from member s to member d; the pieces lie one after another in `in` and in `out`.
  virtual void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) = 0;

  // Ends what is on the device. Any thread.
  virtual void abort() {}

  // Nothing that it was given is on the device any more, though that may be busy for others: it may end at once.
  virtual void rest() {}
};

}  // namespace hvd::cuda
