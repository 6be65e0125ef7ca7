// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/convert.h"

#include <string>

#include "horovod/core.h"

namespace hvd::cuda {
namespace {

// The module that holds the kernel: that of the type which is no half type and no wide integer (kernels.cu).
bool owns(int dtype, int other) {
  switch (dtype) {
    case HVD_FLOAT32:
    case HVD_FLOAT64: return other == HVD_FLOAT16 || other == HVD_BFLOAT16;
    case HVD_INT16: return other == HVD_INT32;
    case HVD_UINT16: return other == HVD_UINT32;
    default: return false;
  }
}

}  // namespace

std::vector<Convert> plan_conversion(const Aborted& aborted, const Scaling& scaling,
                                     const std::vector<Segment>& segments) {
  std::vector<Convert> launches;
  for (const Segment& segment : segments) {
    if (!segment.count) continue;
    size_t blocks = (segment.count + kConvertItems - 1) / kConvertItems;
    if (launches.empty() || launches.back().n == kMostSegments) {
      launches.emplace_back();
      launches.back().aborted = aborted;
      launches.back().scaling = scaling;
      launches.back().n = 0;
      launches.back().first_block[0] = 0;
    }
    Convert& launch = launches.back();
    launch.segments[launch.n] = segment;
    launch.first_block[launch.n + 1] = launch.first_block[launch.n] + static_cast<uint32_t>(blocks);
    ++launch.n;
  }
  return launches;
}

void Converter::run(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments, Stream stream) {
  std::vector<Convert> launches = plan_conversion(stop_.words(), scaling, segments);
  if (launches.empty()) return;
  std::string a = element_name(from);
  std::string b = element_name(to);
  Function kernel = modules_.find(from != to && owns(to, from) ? b : a, "convert_" + a + "_" + b);
  for (const Convert& launch : launches) modules_.launch(kernel, launch.first_block[launch.n], launch, stream);
}

}  // namespace hvd::cuda
