// SPDX-License-Identifier: Apache-2.0
#include "control/knobs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "util/text.h"

namespace hvd {
namespace {

constexpr double kKib = 1 << 10;
constexpr double kMib = 1 << 20;
// The largest chunk that autotune tries.
constexpr int64_t kMostChunk = 4 << 20;

}  // namespace

const std::vector<Knob>& knobs() {
  using Moves = Knob::Moves;
  static const std::vector<Knob> all{
      {"fusion_threshold",
       &Settings::fusion_threshold,
       Moves::kAll,
       {64 * kKib, 256 * kKib, kMib, 4 * kMib, 16 * kMib, 64 * kMib, 128 * kMib},
       "params",
       "fusion_threshold_mb",
       kMib},
      {"cycle_time", &Settings::cycle_time, Moves::kAll, {0, 0.1, 0.5, 2}, "params", "cycle_time_ms", 1},
      {"chunk_bytes",
       &Settings::chunk_bytes,
       Moves::kHostMemory,
       {0, 64 * kKib, 128 * kKib, 256 * kKib, 512 * kKib, kMib, 2 * kMib, 4 * kMib},
       "tuning",
       "chunk_bytes",
       1},
      {"small_bytes",
       &Settings::small_bytes,
       Moves::kHostMemory,
       {0, 4 * kKib, 16 * kKib, 64 * kKib},
       "tuning",
       "small_bytes",
       1},
      {"spin_us", &Settings::spin_us, Moves::kAll, {-1, 0, 20, 200, 1000}, "tuning", "spin_us", 1},
      {"gpu_direct_bytes",
       &Settings::gpu_direct_bytes,
       Moves::kDeviceMemory,
       {0, 64 * kKib, 256 * kKib, kMib, 4 * kMib, 16 * kMib},
       "tuning",
       "gpu_direct_bytes",
       1},
  };
  return all;
}

const Knob* find_knob(const std::string& setting) {
  for (const Knob& knob : knobs())
    if (setting == knob.setting) return &knob;
  return nullptr;
}

double get(const Settings& settings, const Knob& knob) {
  return std::visit([&](auto field) { return static_cast<double>(settings.*field); }, knob.field);
}

void put(Settings& settings, const Knob& knob, double value) {
  std::visit([&](auto field) { settings.*field = static_cast<std::decay_t<decltype(settings.*field)>>(value); },
             knob.field);
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<long long>(value));
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

bool is_fixed(const Settings& settings, const std::string& setting) {
  const std::vector<std::string> names = split(settings.autotune_fixed, ',');
  return std::find(names.begin(), names.end(), setting) != names.end();
}

int64_t staging_bytes(const Settings& settings) {
  int64_t bytes = std::max(settings.shm_slot_bytes, settings.chunk_bytes);
  bool grows = settings.autotune && !is_fixed(settings, "shm_slot_bytes") && !is_fixed(settings, "chunk_bytes");
  return grows ? std::max(bytes, kMostChunk) : bytes;
}

std::string start_from(Settings& settings) {
  if (!settings.autotune) return "";
  for (const std::string& pair : split(settings.autotune_start, ',')) {
    size_t equals = pair.find('=');
    std::string name = pair.substr(0, equals);
    if (equals == std::string::npos || !find_knob(name))
      return "HOROVOD_AUTOTUNE_START=" + settings.autotune_start +
             " must be a list such as fusion_threshold=1048576,spin_us=50 of settings that autotune can change";
    if (is_fixed(settings, name)) continue;
    if (std::string problem = settings.set(name, pair.substr(equals + 1)); !problem.empty())
      return "HOROVOD_AUTOTUNE_START: " + problem;
  }
  return "";
}

void apply(const Tuning& tuning, Settings& settings) {
  for (const auto& [name, value] : tuning.values) {
    if (!find_knob(name)) throw ParseError("a new value for " + name + ", which cannot be changed");
    if (std::string problem = settings.set(name, number_text(value)); !problem.empty()) throw ParseError(problem);
  }
}

std::vector<FreeKnob> free_knobs(const Settings& settings, bool host_memory, bool device_memory) {
  std::vector<FreeKnob> all;
  const Settings preset;
  auto room = static_cast<double>(staging_bytes(settings));
  for (const Knob& knob : knobs()) {
    if (is_fixed(settings, knob.setting)) continue;
    if (knob.moves == Knob::Moves::kHostMemory && !host_memory) continue;
    if (knob.moves == Knob::Moves::kDeviceMemory && !device_memory) continue;
    FreeKnob free{&knob, knob.levels, 0, 0};
    if (knob.moves == Knob::Moves::kHostMemory)  // what does not fit is cut to what does: the same as the level below
      std::erase_if(free.levels, [&](double level) { return level > room; });
    for (double value : {get(settings, knob), get(preset, knob)}) free.levels.push_back(value);
    std::sort(free.levels.begin(), free.levels.end());
    free.levels.erase(std::unique(free.levels.begin(), free.levels.end()), free.levels.end());
    auto level_of = [&](double value) {
      return static_cast<int>(std::lower_bound(free.levels.begin(), free.levels.end(), value) - free.levels.begin());
    };
    free.start = level_of(get(settings, knob));
    free.preset = level_of(get(preset, knob));
    all.push_back(std::move(free));
  }
  return all;
}

}  // namespace hvd
