// SPDX-License-Identifier: Apache-2.0
//
// What being watched costs a collective: processor time of what the engine notes for each one, and of the timeline with
// its writer. Prints nanoseconds.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "horovod/core.h"
#include "util/clock.h"
#include "watch/metrics.h"
#include "watch/recorder.h"
#include "watch/steps.h"
#include "watch/timeline.h"

using namespace hvd;

namespace {

double cpu_s(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {  // of all threads
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename F>
double nanoseconds(int times, F body) {
  double start = cpu_s();
  for (int i = 0; i < times; ++i) body(i);
  return (cpu_s() - start) * 1e9 / times;
}

}  // namespace

int main() {
  constexpr int kTimes = 1000000;
  auto what = std::make_shared<Description>();
  what->name = "allreduce.DistributedOptimizer.grad.layer1.0.conv1.weight";
  const std::vector<int64_t> shape{64, 64, 3, 3};

  Recorder recorder(0);
  double recorded = nanoseconds(kTimes, [&](int) {
    double now = 1.0;  // the engine has the times it needs at hand, one aside
    uint64_t number = recorder.queued({what->name, "ALLREDUCE", HVD_FLOAT32, shape, 147456, 0}, now);
    recorder.announced(number, now);
    recorder.started(number, now, 1);
    recorder.ended(number, now_s(), true);
  });
  Metrics metrics(0, 64);
  double counted = nanoseconds(kTimes, [&](int i) {
    metrics.batch_starts(i, i - 0.5, 1);
    metrics.batch_ended({"ALLREDUCE", 1, 147456, 1 << 27, static_cast<double>(i)}, i + 0.5);
    metrics.latency.add(i % 1000);
  });
  Timeline none({0, 1, "here"});
  Steps steps(metrics, none);
  std::vector<Description> gradients(161, *what);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i].name += std::to_string(i);
  double looked = nanoseconds(kTimes, [&](int i) {
    steps.begins(gradients[static_cast<size_t>(i) % gradients.size()], 147456, i);
    steps.moved(i);
  });
  char path[] = "/tmp/hvd-observation-XXXXXX";
  close(mkstemp(path));
  Timeline timeline({1, 2, "here"});
  if (!timeline.start(path, false, 64 << 20)) return 1;
  double start = cpu_s();
  double own = cpu_s(CLOCK_THREAD_CPUTIME_ID);
  constexpr int kTraced = 100000;
  for (int i = 0; i < kTraced; ++i) {
    double now = now_s();
    timeline.begin(what, {now, now, now, 147456, static_cast<uint64_t>(i), 0});
    timeline.span(what, "PACK", now, now);
    timeline.span(what, "REDUCE", now, now);
    timeline.end(what, shape);
    if (i % 1000 == 999) usleep(1000);
  }
  own = (cpu_s(CLOCK_THREAD_CPUTIME_ID) - own) * 1e9 / kTraced;
  timeline.stop();
  double traced = (cpu_s() - start) * 1e9 / kTraced;
  unlink(path);
  std::printf(
      "a collective: recorder %.0f ns, counters %.0f ns, steps %.0f ns, timeline %.0f ns, with its writer %.0f ns\n",
      recorded, counted, looked, own, traced);
}
