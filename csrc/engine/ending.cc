// SPDX-License-Identifier: Apache-2.0
#include "engine/ending.h"

#include "util/clock.h"

namespace hvd {
namespace {

constexpr size_t kMaxReason = 600;  // what the messages have room for, beside names

}  // namespace

const char kShutdownText[] =
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, "
    "allgather or broadcast a tensor after one of the ranks finished execution. If the shutdown was caused by an "
    "exception, you should see the exception in the log before the first shutdown message.";

std::string Ending::describe(const Departure& departure) const {
  return topology_.describe(departure.rank) + " left" +
         (departure.reason.empty() ? " in good order: it called shutdown, or its script ended."
                                   : ": " + departure.reason);
}

void Ending::ask(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (asked_) return;
  reason_ = reason.substr(0, kMaxReason);
  asked_ = true;
}

bool Ending::take_request(std::string* reason) {
  if (!asked_.load(std::memory_order_relaxed)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  if (taken_) return false;
  taken_ = true;
  *reason = reason_;
  return true;
}

std::string Ending::planned(const Departure& departure) {
  std::lock_guard<std::mutex> lock(mutex_);
  planned_ = true;
  cause_ = describe(departure);
  return std::string(kShutdownText) + " " + cause_;
}

void Ending::heard_goodbye(const std::string& cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (cause_.empty()) cause_ = cause;
  if (heard_at_ == 0) heard_at_ = now_s();
}

double Ending::since_goodbye() const { return heard() ? now_s() - heard_at_ : 0; }

std::string Ending::goodbye_text() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::string(kShutdownText) + " " + cause_;
}

std::string Ending::cause() {
  std::lock_guard<std::mutex> lock(mutex_);
  return cause_.empty() ? describe({topology_.rank, reason_}) : cause_;
}

}  // namespace hvd
