// SPDX-License-Identifier: Apache-2.0
// Adasum (Maleki et al., 2020) for any number of ranks.
//
// The gradients are transposed once, so that each rank holds its share of everybody's; then every level of the tree
// is local arithmetic plus one small allreduce of dot products, and the shares are gathered at the end. Bytes a rank:
// those of one alltoall and one allgather of B, and 24 bytes for each tensor and pair.
//
// Who is combined with whom: world/pair_tree.h.
#include <cmath>
#include <cstring>
#include <limits>

#include "horovod/core.h"
#include "paths/host/comm.h"
#include "paths/kernels/kernels.h"
#include "util/dtype.h"
#include "world/pair_tree.h"

namespace hvd {

void Comm::adasum(const Spans& spans, const Reduction& how) {
  int n = members();
  int dtype = how.dtype;
  if (n == 1) return reduce_alone(spans, how);
  size_t item = item_size(dtype);
  size_t total = spans.bytes();
  size_t elements = total / item;
  auto cut = [&](int i) { return elements * static_cast<size_t>(i) / static_cast<size_t>(n) * item; };
  size_t begin = cut(layout.my_index);
  size_t share = cut(layout.my_index + 1) - begin;

  // Transpose.
  std::vector<char> mine(total);
  spans.each(0, total, [&](const Span& part, size_t at) {
    if (part.in) std::memcpy(mine.data() + at, part.in, part.bytes);
  });
  if (how.prescale != 1.0) kernels::scale(dtype, mine.data(), mine.data(), elements, how.prescale);
  std::vector<char> vectors(share * static_cast<size_t>(n));
  std::vector<size_t> sizes(static_cast<size_t>(n) * static_cast<size_t>(n));
  std::vector<const char*> send(n);
  std::vector<char*> recv(n);
  for (int i = 0; i < n; ++i) {
    for (int s = 0; s < n; ++s)
      sizes[static_cast<size_t>(s) * static_cast<size_t>(n) + static_cast<size_t>(i)] = cut(i + 1) - cut(i);
    send[i] = mine.data() + cut(i);
    recv[i] = vectors.data() + share * static_cast<size_t>(i);
  }
  alltoall(sizes, send, recv);
  settle();

  // The part of each tensor that lies in my share: offset in the share and length.
  size_t tensors = spans.all().size();
  std::vector<Piece> parts(tensors, Piece{nullptr, 0});
  std::vector<size_t> offsets(tensors);
  size_t start = 0;
  for (size_t t = 0; t < tensors; ++t) {
    size_t end = start + spans.all()[t].bytes;
    size_t first = std::max(start, begin);
    size_t last = std::min(end, begin + share);
    if (last > first) {
      offsets[t] = first - begin;
      parts[t].bytes = last - first;
    }
    start = end;
  }

  const double tiny = std::sqrt(std::numeric_limits<double>::min());
  for (const auto& level : pair_tree(n)) {
    std::vector<double> dots(level.size() * tensors * 3);
    for (size_t p = 0; p < level.size(); ++p)
      for (size_t t = 0; t < tensors; ++t)
        if (parts[t].bytes)
          kernels::dots(dtype, recv[level[p].left] + offsets[t], recv[level[p].right] + offsets[t],
                        parts[t].bytes / item, &dots[(p * tensors + t) * 3]);
    Spans sums;
    sums.add(dots.data(), dots.data(), dots.size() * sizeof(double));
    reduce_chunked(sums, {HVD_FLOAT64, HVD_SUM});
    settle();
    for (size_t p = 0; p < level.size(); ++p)
      for (size_t t = 0; t < tensors; ++t) {
        if (!parts[t].bytes) continue;
        const double* d = &dots[(p * tensors + t) * 3];  // a.a, a.b, b.b
        double left = d[0] < tiny ? 1.0 : 1.0 - d[1] / (2 * d[0]);
        double right = d[2] < tiny ? 1.0 : 1.0 - d[1] / (2 * d[2]);
        char* a = recv[level[p].left] + offsets[t];
        kernels::combine(dtype, a, left, a, right, recv[level[p].right] + offsets[t], parts[t].bytes / item);
      }
  }

  // Gather the shares of the result.
  Spans result;
  result.add(recv[0], nullptr, share);
  std::vector<size_t> blocks(n);
  std::vector<Spans> sinks(n);
  for (int i = 0; i < n; ++i) {
    blocks[i] = cut(i + 1) - cut(i);
    sinks[i].add(nullptr, mine.data() + cut(i), blocks[i]);
  }
  allgather(result, blocks, sinks);
  if (how.postscale != 1.0) kernels::finish(dtype, mine.data(), elements, how.postscale, 1);
  spans.each(0, total, [&](const Span& part, size_t at) {
    if (part.out) std::memcpy(part.out, mine.data() + at, part.bytes);
  });
}

}  // namespace hvd
