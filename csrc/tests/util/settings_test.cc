// SPDX-License-Identifier: Apache-2.0
#include "util/settings.h"

#include <cstring>

#include "tests/check.h"
#include "util/text.h"

using namespace hvd;

TEST(values_below_what_is_safe_are_refused_by_name) {
  struct Wrong {
    const char *name, *value, *text;
  };
  for (const Wrong& w : {Wrong{"shm_slot_bytes", "16383", "HOROVOD_SHM_SLOT_BYTES=16383 must be at least 16384"},
                         {"shm_slot_bytes", "-1", "must be at least 16384"},
                         {"shm_slot_bytes", "99999999999999", "must be at most 1073741824"},
                         {"shm_slot_bytes", "1 MiB", "HOROVOD_SHM_SLOT_BYTES=1 MiB is not a number"},
                         {"shm_slot_bytes", "99999999999999999999", "is not a number"},
                         {"fusion_threshold", "-1", "HOROVOD_FUSION_THRESHOLD=-1 must be at least 0"},
                         {"cycle_time", "nan", "HOROVOD_CYCLE_TIME=nan must be at least 0"},
                         {"cycle_time", "-0.5", "must be at least 0"},
                         {"cycle_time", "", "is not a number"},
                         {"cache_capacity", "-7", "HOROVOD_CACHE_CAPACITY=-7 must be at least 0"},
                         {"spin_us", "-2", "HOROVOD_SPIN_US=-2 must be at least -1"},
                         {"stall_check_time_seconds", "60s", "HOROVOD_STALL_CHECK_TIME_SECONDS=60s is not a number"},
                         {"link_security", "none", "must be one of control, integrity, encrypt"},
                         {"no_such_setting", "1", "no setting called no_such_setting"}}) {
    const testing::Case c(w.name, w.value);
    Settings settings;
    const std::string problem = settings.set(w.name, w.value);
    CHECK(problem.find(w.text) != std::string::npos);
    CHECK_EQ(settings.shm_slot_bytes, int64_t(1) << 20);  // and stays what it was
  }
}

TEST(values_that_make_sense_are_taken) {
  Settings settings;
  CHECK_EQ(settings.set("shm_slot_bytes", "16384"), "");
  CHECK_EQ(settings.shm_slot_bytes, int64_t(16384));
  CHECK_EQ(settings.set("cycle_time", "2.5"), "");
  CHECK_EQ(settings.cycle_time, 2.5);
  CHECK_EQ(settings.set("spin_us", "-1.0"), "");
  CHECK_EQ(settings.set("link_security", "ENCRYPT"), "");
  CHECK_EQ(settings.link_security, "encrypt");
  CHECK_EQ(settings.set("log_hide_time", "1"), "");
  CHECK(settings.log_hide_time);
  CHECK_EQ(settings.set("log_hide_time", "yes"), "");  // documented: what is no number is false
  CHECK(!settings.log_hide_time);
}
