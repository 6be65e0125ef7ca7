// SPDX-License-Identifier: Apache-2.0
// Adasum on GPUs, from a Group's primitives, with the host never looking at a number.
//
// As on the host: the gradients are transposed once, so that each rank holds its share of everybody's; every level of
// the tree is arithmetic on the device plus one small allreduce of dot products; the shares are gathered at the end.
#include <algorithm>

#include "horovod/core.h"
#include "paths/cuda/fuse.h"
#include "paths/cuda/verbs.h"
#include "util/dtype.h"
#include "world/pair_tree.h"

namespace hvd::cuda {
namespace {

struct Part {
  size_t offset;  // elements into this rank's share
  size_t count;
};

// Launches of at most kMostSegments; the sums of segment k of launch l are at sums + 3 * (l * kMostSegments + k).
std::vector<Pairwise> plan_pairs(const Aborted& aborted, const std::vector<Segment>& segments, double* sums) {
  std::vector<Pairwise> launches;
  for (const Segment& segment : segments) {
    if (launches.empty() || launches.back().n == kMostSegments) {
      launches.emplace_back();
      launches.back().aborted = aborted;
      launches.back().sums = sums + 3 * kMostSegments * (launches.size() - 1);
      launches.back().n = 0;
      launches.back().first_block[0] = 0;
    }
    Pairwise& launch = launches.back();
    launch.segments[launch.n] = segment;
    launch.first_block[launch.n + 1] =
        launch.first_block[launch.n] + static_cast<uint32_t>(divide_up(segment.count, kConvertItems));
    ++launch.n;
  }
  return launches;
}

}  // namespace

void Verbs::adasum(const PlannedBatch& batch) {
  const Description& first = batch.agreed[0]->description;
  int dtype = first.dtype;
  size_t item = item_size(dtype);
  auto n = static_cast<size_t>(group_.n);
  auto me = static_cast<size_t>(group_.me);
  size_t tensors = batch.tensors.size();

  // Everything packed, one tensor behind the other, and cut into equal shares.
  std::vector<size_t> starts(tensors + 1, 0);
  for (size_t t = 0; t < tensors; ++t) {
    starts[t + 1] = starts[t] + static_cast<size_t>(batch.agreed[t]->description.elements());
    if (Tensor* tensor = batch.tensors[t]) place_output(*tensor, tensor->shape);
  }
  size_t all = starts[tensors];
  if (!all) return;
  std::vector<size_t> begins;
  std::vector<size_t> counts;
  equal_shares(all, item, n, &begins, &counts);
  size_t share = round_up(std::max<size_t>(counts[me], 1) * item, 16);
  std::vector<std::vector<Pair>> levels = pair_tree(group_.n);
  size_t most_pairs = 0;
  for (const auto& level : levels) most_pairs = std::max(most_pairs, level.size());
  size_t most_sums = 3 * round_up(most_pairs * tensors, kMostSegments);

  char* mine = space_.fused.reserve(round_up(all * item, 16) + most_sums * sizeof(double));
  auto* sums = reinterpret_cast<double*>(mine + round_up(all * item, 16));
  char* vectors = space_.vectors.reserve(n * share);
  std::vector<Segment> in;
  std::vector<Segment> out;
  for (size_t t = 0; t < tensors; ++t) {
    const Tensor* tensor = batch.tensors[t];
    size_t count = starts[t + 1] - starts[t];
    in.push_back({tensor ? tensor->input : nullptr, mine + starts[t] * item, count});
    if (tensor) out.push_back({mine + starts[t] * item, tensor->output, count});
  }
  pack(dtype, dtype, scaling_for(dtype, first.prescale, 1), in);

  // Transpose: vectors + i * (my share's bytes) is what member i has of my share.
  std::vector<size_t> bytes(n * n);
  for (size_t s = 0; s < n; ++s)
    for (size_t d = 0; d < n; ++d) bytes[s * n + d] = counts[d] * item;
  group_.all_to_all(mine, vectors, bytes, stream_);
  auto vector = [&](int i) { return vectors + static_cast<size_t>(i) * counts[me] * item; };

  // The part of each tensor that lies in my share.
  std::vector<Part> parts(tensors, Part{0, 0});
  for (size_t t = 0; t < tensors; ++t) {
    size_t from = std::max(starts[t], begins[me]);
    size_t to = std::min(starts[t + 1], begins[me] + counts[me]);
    if (to > from) parts[t] = {from - begins[me], to - from};
  }

  std::string element = element_name(dtype);
  Function dots = tools_.modules.find(element, "dots_" + element);
  Function combine = tools_.modules.find(element, "combine_" + element);
  Reduce add{HVD_FLOAT64, HVD_SUM, scaling_for(HVD_FLOAT64, 1.0, 1)};
  for (const auto& level : levels) {
    std::vector<Segment> pairs;
    for (const Pair& pair : level)
      for (const Part& part : parts)
        pairs.push_back({vector(pair.right) + part.offset * item, vector(pair.left) + part.offset * item, part.count});
    std::vector<Pairwise> launches = plan_pairs(tools_.stop.words(), pairs, sums);
    for (const Pairwise& launch : launches) tools_.modules.launch(dots, static_cast<size_t>(launch.n), launch, stream_);
    group_.all_reduce(add, sums, sums, 3 * round_up(pairs.size(), kMostSegments), stream_);
    for (const Pairwise& launch : launches)
      tools_.modules.launch(combine, launch.first_block[launch.n], launch, stream_);
  }

  for (size_t i = 0; i < n; ++i) {
    begins[i] *= item;
    counts[i] *= item;
  }
  group_.all_gather(vector(0), mine, begins, counts, stream_);
  unpack(dtype, dtype, scaling_for(dtype, first.postscale, 1), out);
}

}  // namespace hvd::cuda
