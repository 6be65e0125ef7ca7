// SPDX-License-Identifier: Apache-2.0
#include "util/settings.h"

#include <cstdlib>

namespace hvd {
namespace {

bool parse(const std::string& text, double* out) {
  char* end = nullptr;
  *out = std::strtod(text.c_str(), &end);
  return end != text.c_str();
}

bool parse(const std::string& text, int64_t* out) {
  char* end = nullptr;
  *out = std::strtoll(text.c_str(), &end, 10);
  return end != text.c_str();
}

// Documented rule: an integer above zero is true, anything else false.
bool parse(const std::string& text, bool* out) {
  *out = std::strtol(text.c_str(), nullptr, 10) > 0;
  return true;
}

bool parse(const std::string& text, std::string* out) {
  *out = text;
  return true;
}

}  // namespace

bool Settings::set(const std::string& name, const std::string& value) {
#define HVD_SETTING(field) \
  if (name == #field) return parse(value, &field)
  HVD_SETTING(fusion_threshold);
  HVD_SETTING(cycle_time);
  HVD_SETTING(cache_capacity);
  HVD_SETTING(disable_group_fusion);
  HVD_SETTING(stall_check_disable);
  HVD_SETTING(stall_check_time_seconds);
  HVD_SETTING(stall_shutdown_time_seconds);
  HVD_SETTING(timeline);
  HVD_SETTING(timeline_mark_cycles);
  HVD_SETTING(log_level);
  HVD_SETTING(log_hide_time);
  HVD_SETTING(cpu_operations);
  HVD_SETTING(thread_affinity);
  HVD_SETTING(shm_slot_bytes);
  HVD_SETTING(spin_us);
#undef HVD_SETTING
  return false;
}

}  // namespace hvd
