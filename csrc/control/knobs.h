// SPDX-License-Identifier: Apache-2.0
// What the engine can change while it runs: settings, each with the levels that are worth trying.
//
// A new one is a row in knobs.cc, and somebody who reads the setting at every batch (see Engine::retune).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "control/message.h"
#include "util/settings.h"

namespace hvd {

struct Knob {
  enum class Moves { kAll, kHostMemory, kDeviceMemory };  // what kind of memory it has to do with

  const char* setting;
  std::variant<int64_t Settings::*, double Settings::*> field;
  Moves moves;
  std::vector<double> levels;  // ascending
  const char* section;         // where the file of --config-file has it
  const char* key;
  double unit;  // of the file's value
};

const std::vector<Knob>& knobs();
// Null if there is none of this name.
const Knob* find_knob(const std::string& setting);

double get(const Settings& settings, const Knob& knob);
void put(Settings& settings, const Knob& knob, double value);
// "1048576", "0.1", in every locale.
std::string number_text(double value);

// Whether the user said what a setting should be.
bool is_fixed(const Settings& settings, const std::string& setting);
// Bytes of a staging buffer: room for what autotune may try, too.
int64_t staging_bytes(const Settings& settings);
// Puts what autotune should start from (settings.autotune_start) into force. Returns "", or what is wrong with it.
std::string start_from(Settings& settings);
// Takes over what rank 0 decided. Throws ParseError for what cannot be.
void apply(const Tuning& tuning, Settings& settings);

// The knobs that may be turned in a job, each with its levels: what it starts with and the default are among them.
struct FreeKnob {
  const Knob* knob;
  std::vector<double> levels;
  int start;
  int preset;  // the level of the default
};
std::vector<FreeKnob> free_knobs(const Settings& settings, bool host_memory, bool device_memory);

}  // namespace hvd
