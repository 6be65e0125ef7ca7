// SPDX-License-Identifier: Apache-2.0
//
// What one training step costs the coordinator as the job grows: simulated ranks, real messages.
// Prints one JSON object a line: hosts, ranks, messages and bytes through the coordinator, microseconds of
// its time. coordinator_bench [tensors a step] [steps]
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/control/simulation.h"

using namespace hvd;
using namespace hvd::testing;

int main(int argc, char** argv) {
  const int tensors = argc > 1 ? std::atoi(argv[1]) : 161;  // ResNet-50's gradients
  const int steps = argc > 2 ? std::atoi(argv[2]) : 5;
  struct World {
    int hosts, per_host;
  };
  for (World w :
       {World{1, 1}, {1, 2}, {1, 8}, {2, 8}, {4, 8}, {8, 8}, {16, 8}, {32, 8}, {64, 8}, {128, 8}, {1024, 1}}) {
    Simulation sim(w.hosts, w.per_host, Settings{}, std::nullopt);
    std::vector<std::string> names;
    for (int t = 0; t < tensors; ++t) names.push_back("layer" + std::to_string(t) + ".weight");
    for (int r = 0; r < sim.size(); ++r) {
      for (int t = 0; t < tensors; ++t) {
        Description d;
        d.name = names[t];
        d.kind = HVD_ALLREDUCE;
        d.dtype = HVD_FLOAT32;
        d.reduce_op = HVD_AVERAGE;
        d.shape = {64, 3, t % 7 + 1};
        sim.submit(r, d);
      }
    }
    sim.run();
    const double first = sim.traffic.root_seconds * 1e6;
    std::vector<double> times;
    for (int s = 0; s < steps; ++s) {
      sim.traffic = {};
      for (int r = 0; r < sim.size(); ++r) sim.submit_cached(r, names);
      sim.run();
      times.push_back(sim.traffic.root_seconds * 1e6);
    }
    std::sort(times.begin(), times.end());
    std::printf(
        "{\"hosts\": %d, \"ranks\": %d, \"tensors\": %d, \"first_step_us\": %.1f, \"step_us\": %.1f, "
        "\"messages_in\": %llu, \"bytes_in\": %llu, \"messages_out\": %llu, \"bytes_out\": %llu, "
        "\"messages_all\": %llu}\n",
        w.hosts, sim.size(), tensors, first, times[times.size() / 2], (unsigned long long)sim.traffic.to_root,
        (unsigned long long)sim.traffic.to_root_bytes, (unsigned long long)sim.traffic.from_root,
        (unsigned long long)sim.traffic.from_root_bytes, (unsigned long long)sim.traffic.all);
    std::fflush(stdout);
  }
}
