// SPDX-License-Identifier: Apache-2.0
#include "util/settings.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "util/text.h"

namespace hvd {
namespace {

// The smallest staging buffer: room for what is reduced in one round by default (small_bytes).
constexpr double kMinSlot = 16 << 10;
constexpr double kMaxSlot = 1 << 30;
constexpr double kUnlimited = std::numeric_limits<double>::max();

// "HOROVOD_SHM_SLOT_BYTES=12": the settings' environment variables follow from their names.
std::string shown(const std::string& name, const std::string& value) {
  std::string variable = "HOROVOD_";
  for (char c : name) variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return variable + "=" + value;
}

template <typename T, typename Parsed>
std::string set_number(const std::string& name, const std::string& text, double least, double most, T* out) {
  Parsed parsed{};
  if (!parse_number(text, &parsed)) return shown(name, text) + " is not a number";
  auto value = static_cast<double>(parsed);
  if (std::isnan(value) || value < least)
    return shown(name, text) + " must be at least " + std::to_string(static_cast<long long>(least));
  if (value > most) return shown(name, text) + " must be at most " + std::to_string(static_cast<long long>(most));
  *out = static_cast<T>(parsed);
  return "";
}

std::string set_value(const std::string& name, const std::string& text, int64_t* out, double least, double most) {
  return set_number<int64_t, long long>(name, text, least, most, out);
}

std::string set_value(const std::string& name, const std::string& text, double* out, double least, double most) {
  return set_number<double, double>(name, text, least, most, out);
}

// Documented rule: an integer above zero is true, anything else false.
std::string set_value(const std::string&, const std::string& text, bool* out) {
  long long parsed = 0;
  *out = parse_number(text, &parsed) && parsed > 0;
  return "";
}

std::string set_value(const std::string&, const std::string& text, std::string* out) {
  *out = text;
  return "";
}

// One of these, in any case.
std::string set_choice(const std::string& name, const std::string& text, std::initializer_list<const char*> choices,
                       std::string* out) {
  std::string list;
  for (const char* choice : choices) {
    if (lower(choice) == lower(text)) {
      *out = choice;
      return "";
    }
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  return shown(name, text) + " must be one of " + list;
}

}  // namespace

std::string Settings::set(const std::string& name, const std::string& value) {
#define HVD_SETTING(field, ...) \
  if (name == #field) return set_value(name, value, &field __VA_OPT__(, ) __VA_ARGS__)
  HVD_SETTING(fusion_threshold, 0, kUnlimited);
  HVD_SETTING(cycle_time, 0, 1e6);
  HVD_SETTING(cache_capacity, 0, kUnlimited);
  HVD_SETTING(disable_group_fusion);
  HVD_SETTING(stall_check_disable);
  HVD_SETTING(stall_check_time_seconds, 0, kUnlimited);
  HVD_SETTING(stall_shutdown_time_seconds, 0, kUnlimited);
  HVD_SETTING(network_timeout_seconds, 1, 32767);
  HVD_SETTING(timeline);
  HVD_SETTING(timeline_mark_cycles);
  HVD_SETTING(timeline_max_bytes, 0, kUnlimited);
  HVD_SETTING(nvtx_library);
  HVD_SETTING(flight_recorder);
  HVD_SETTING(log_level);
  HVD_SETTING(log_hide_time);
  HVD_SETTING(cpu_operations);
  HVD_SETTING(thread_affinity);
  if (name == "gpu_operations") return set_choice(name, value, {"auto", "NCCL", "direct", "host"}, &gpu_operations);
  HVD_SETTING(num_nccl_streams, 0, 8);
  HVD_SETTING(gpu_direct_bytes, 0, kUnlimited);
  HVD_SETTING(cuda_library);
  HVD_SETTING(nccl_library);
  HVD_SETTING(shm_slot_bytes, kMinSlot, kMaxSlot);
  HVD_SETTING(chunk_bytes, 0, kMaxSlot);
  HVD_SETTING(small_bytes, 0, kMaxSlot);
  HVD_SETTING(output_pool_bytes, 0, kUnlimited);
  HVD_SETTING(spin_us, -1, 1e6);
  HVD_SETTING(crypto_library);
  HVD_SETTING(autotune);
  HVD_SETTING(autotune_log);
  HVD_SETTING(autotune_output);
  HVD_SETTING(autotune_start);
  HVD_SETTING(autotune_fixed);
  HVD_SETTING(autotune_warmup_samples, 0, kUnlimited);
  HVD_SETTING(autotune_steps_per_sample, 0, kUnlimited);
  HVD_SETTING(autotune_bayes_opt_max_samples, 0, kUnlimited);
  HVD_SETTING(autotune_gaussian_process_noise, 0, 1);
#undef HVD_SETTING
  if (name == "link_security") return set_choice(name, value, {"control", "integrity", "encrypt"}, &link_security);
  return "the engine has no setting called " + name;
}

}  // namespace hvd
