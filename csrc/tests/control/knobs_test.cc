// SPDX-License-Identifier: Apache-2.0
#include "control/knobs.h"

#include <algorithm>

#include "tests/check.h"

using namespace hvd;

namespace {

Settings tuned() {
  Settings settings;
  settings.autotune = true;
  return settings;
}

std::vector<std::string> names(const std::vector<FreeKnob>& free) {
  std::vector<std::string> all;
  for (const FreeKnob& knob : free) all.emplace_back(knob.knob->setting);
  return all;
}

bool has(const std::vector<FreeKnob>& free, const std::string& name) {
  auto all = names(free);
  return std::find(all.begin(), all.end(), name) != all.end();
}

}  // namespace

TEST(every_level_can_be_set) {
  for (const Knob& knob : knobs())
    for (double level : knob.levels) {
      const testing::Case c(knob.setting, level);
      Settings settings;
      CHECK_EQ(settings.set(knob.setting, number_text(level)), "");
      CHECK_EQ(get(settings, knob), level);
      Settings other;
      put(other, knob, level);
      CHECK_EQ(get(other, knob), level);
    }
}

TEST(what_the_user_set_stays_and_so_does_what_has_no_effect) {
  Settings settings = tuned();
  settings.autotune_fixed = "log_level,spin_us,fusion_threshold";
  const auto free = free_knobs(settings, true, false);
  CHECK(!has(free, "spin_us") && !has(free, "fusion_threshold"));
  CHECK(has(free, "chunk_bytes") && has(free, "small_bytes") && !has(free, "gpu_direct_bytes"));
  const auto device = free_knobs(tuned(), false, true);
  CHECK(has(device, "gpu_direct_bytes") && !has(device, "chunk_bytes"));
}

TEST(the_start_and_the_default_are_levels) {
  Settings settings = tuned();
  settings.autotune_start = "fusion_threshold=1,spin_us=33.5";
  CHECK_EQ(start_from(settings), "");
  for (const FreeKnob& free : free_knobs(settings, true, true)) {
    const testing::Case c(free.knob->setting);
    CHECK_EQ(free.levels[size_t(free.start)], get(settings, *free.knob));
    CHECK_EQ(free.levels[size_t(free.preset)], get(Settings{}, *free.knob));
    CHECK(std::is_sorted(free.levels.begin(), free.levels.end()));
  }
  CHECK_EQ(settings.fusion_threshold, int64_t(1));
  CHECK_EQ(settings.spin_us, 33.5);
}

TEST(a_start_that_cannot_be_is_refused) {
  for (const char* text : {"fusion_threshold", "log_level=debug", "spin_us=fast", "spin_us=-3", "=,"}) {
    const testing::Case c(text);
    Settings settings = tuned();
    settings.autotune_start = text;
    CHECK(start_from(settings).find("HOROVOD_AUTOTUNE_START") == 0);
  }
  Settings fixed = tuned();
  fixed.autotune_start = "spin_us=7";
  fixed.autotune_fixed = "spin_us";
  CHECK_EQ(start_from(fixed), "");
  CHECK_EQ(fixed.spin_us, -1.0);
  Settings off;
  off.autotune_start = "nonsense";
  CHECK_EQ(start_from(off), "");
}

TEST(buffers_have_room_for_what_may_be_tried) {
  Settings settings;
  CHECK_EQ(staging_bytes(settings), int64_t(1) << 20);
  settings.chunk_bytes = 2 << 20;
  CHECK_EQ(staging_bytes(settings), int64_t(2) << 20);
  CHECK_EQ(staging_bytes(tuned()), int64_t(4) << 20);
  settings = tuned();
  settings.shm_slot_bytes = 64 << 10;
  settings.autotune_fixed = "shm_slot_bytes";
  CHECK_EQ(staging_bytes(settings), int64_t(64) << 10);
  for (const FreeKnob& free : free_knobs(settings, true, false))
    if (free.knob->setting == std::string("chunk_bytes")) CHECK_EQ(free.levels.back(), double(64 << 10));
}

TEST(only_knobs_can_be_turned_from_afar) {
  Settings settings;
  apply({1, {{"fusion_threshold", 4096}, {"cycle_time", 0.5}}}, settings);
  CHECK_EQ(settings.fusion_threshold, int64_t(4096));
  CHECK_EQ(settings.cycle_time, 0.5);
  for (const char* name : {"cache_capacity", "nccl_library", ""}) {
    const testing::Case c(name);
    bool refused = false;
    try {
      apply({2, {{name, 1}}}, settings);
    } catch (const ParseError&) {
      refused = true;
    }
    CHECK(refused);
  }
  bool refused = false;
  try {
    apply({2, {{"spin_us", -5}}}, settings);
  } catch (const ParseError&) {
    refused = true;
  }
  CHECK(refused);
}
