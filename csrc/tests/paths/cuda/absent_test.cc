// SPDX-License-Identifier: Apache-2.0
//
// A machine without a driver, and one whose driver sees no GPU: who submits a GPU tensor is told so, and everything
// else goes on. A driver is looked for once a process, hence the program of its own.
#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::string refusal(Engine& engine, float* data) {
  Gradient t("gpu", 10, 1.f);
  hvd_request r = t.request();
  r.device = 0;
  r.input = r.output = data;
  try {
    engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
    return "accepted";
  } catch (const Refused& e) {
    return e.what();
  }
}

}  // namespace

TEST(no_driver_and_no_gpu) {
  Settings settings;
  settings.cuda_library = "/nowhere/libcuda.so.1";
  float data[10] = {};
  {
    Job job({1}, settings);
    const std::string text = refusal(job.engine(0), data);
    CHECK(text.find("gpu is said to be on a GPU, but the NVIDIA driver's library cannot be loaded") == 0);
    CHECK(text.find("/nowhere/libcuda.so.1") != std::string::npos);
    CHECK_EQ(job.engine(0).device_report(), std::string("{}"));
    Gradient host("host", 10, 1.f);
    const hvd_request r = host.request();
    const int64_t handle = job.engine(0).submit(&r, 1, 0, nullptr, nullptr, nullptr);
    CHECK(job.engine(0).wait(handle, 10.0).ok());
    job.engine(0).release(handle);
  }
  setenv("STANDIN_GPUS", "0", 1);
  settings.cuda_library = STANDIN_CUDA;
  Job job({1}, settings);
  CHECK(refusal(job.engine(0), data).find("the NVIDIA driver does not start") != std::string::npos);
}
