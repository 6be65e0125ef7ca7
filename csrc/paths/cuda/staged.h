// SPDX-License-Identifier: Apache-2.0
// GPU tensors through pinned host memory and the host's data path, for machines where GPUs cannot reach each other.
//
// Reductions and broadcasts go in chunks: while one is reduced by the processors, the next is on its way down and the
// last on its way up. The caller's thread waits for the device here; there is no other way.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "paths/cuda/device.h"
#include "paths/cuda/group.h"
#include "paths/host/host_path.h"

namespace hvd::cuda {

class Staged : public Group {
 public:
  Staged(std::shared_ptr<Device> device, HostPath& host, int me, int n);
  ~Staged() override;

  const char* name() const override { return "host"; }
  // The batch whose collectives follow.
  void enter(const PlannedBatch& batch) { batch_ = &batch; }

  void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) override;
  void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                      const std::vector<size_t>& counts, Stream stream) override;
  void all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                  Stream stream) override;
  void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) override;
  void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) override;

 private:
  static constexpr size_t kChunks = 3;  // on their way at a time

  // Calls work(chunk in host memory, its bytes) for one chunk after another, in which `in` was copied there (if it is
  // given) and from which `out` is copied (if it is given).
  template <class Work>
  void in_chunks(const void* in, void* out, size_t bytes, Stream stream, Work work);
  char* to_host(const void* from, size_t bytes, char* to, Stream stream);
  void await(const Event& event);
  char* whole(size_t bytes);

  std::shared_ptr<Device> device_;
  HostPath& host_;
  const PlannedBatch* batch_ = nullptr;
  Stream down_, up_;  // copies to the host and back
  std::array<std::unique_ptr<Pinned>, kChunks> chunks_;
  std::array<EventPtr, kChunks> free_;  // when the chunk's last bytes have gone up
  std::unique_ptr<Pinned> whole_;       // of collectives that are not cut
  EventPtr whole_free_;
};

// How many bytes of `total` a chunk has: a multiple of 64, so that elements are not cut. Pure.
constexpr size_t kChunkBytes = 4 << 20;
inline size_t chunk_at(size_t offset, size_t total) {
  return total - offset < kChunkBytes ? total - offset : kChunkBytes;
}

}  // namespace hvd::cuda
