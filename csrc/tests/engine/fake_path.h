// SPDX-License-Identifier: Apache-2.0
//
// A data path whose work goes on by itself, as a device's does: start() only notes the batch, and a thread of its own
// ends batches later, in an order of its own, or not before the test says so. It serves "device" memory, which here is
// plain memory, and adds up float32.
#ifndef HOROVOD_TESTS_ENGINE_FAKE_PATH_H_
#define HOROVOD_TESTS_ENGINE_FAKE_PATH_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "paths/data_path.h"

namespace hvd::testing {

// What the fake devices of a job have in common: sums under construction, and what the test wants.
struct FakeWire {
  struct Sum {
    std::vector<std::vector<float>> tensors;
    int deposits = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int32_t, uint64_t>, Sum> sums;  // by process set and sequence number
  bool held = false;                                 // nothing ends
  std::atomic<uint64_t> fail_every{0};               // batches whose number it divides fail, on every rank

  void hold() { set_held(true); }
  void release() { set_held(false); }
  void set_held(bool value) {
    std::lock_guard<std::mutex> lock(mutex);
    held = value;
    changed.notify_all();
  }
};

class FakePath : public DataPath {
 public:
  FakePath(FakeWire& wire, Courier& courier, unsigned seed) : wire_(wire), courier_(courier), random_(seed) {
    thread_ = std::thread([this] { work(); });
  }
  ~FakePath() override {
    {
      std::lock_guard<std::mutex> lock(wire_.mutex);
      stopping_ = true;
      wire_.changed.notify_all();
    }
    thread_.join();
  }

  bool serves(int32_t device, const SetLayout&) const override { return device >= 0; }

  void start(PlannedBatch& batch, BatchEnd& end) override {
    std::unique_lock<std::mutex> lock(wire_.mutex);
    const int32_t set = batch.process_set;
    if (!ids.count(set)) {  // the first batch of a set: its first member makes an id for all
      uint64_t id = uint64_t(batch.layout->members[size_t(batch.layout->my_index)]) * 1000 + batch.seq;
      lock.unlock();
      courier_.from_first_member(batch, &id, sizeof id);
      lock.lock();
      ids[set] = id;
    }
    started.emplace_back(set, batch.seq);
    deposit(batch);
    flying_.push_back({&batch, &end});
    most_in_flight = std::max(most_in_flight, flying_.size());
    wire_.changed.notify_all();
  }

  void abort(const std::string& why) override {
    std::lock_guard<std::mutex> lock(wire_.mutex);
    if (!aborted_) why_ = why;
    aborted_ = true;
    wire_.changed.notify_all();
  }

  void wait_for_flights(size_t n) {
    std::unique_lock<std::mutex> lock(wire_.mutex);
    wire_.changed.wait(lock, [&] { return flying_.size() >= n; });
  }
  // Says that this rank cannot go on.
  void break_down(const std::string& why) {
    BatchEnd* end;
    {
      std::lock_guard<std::mutex> lock(wire_.mutex);
      end = flying_.front().end;
    }
    end->broken(why);
  }

  // For the test, after the threads are done.
  std::vector<std::pair<int32_t, uint64_t>> started;  // set and number, in the order of start()
  std::vector<uint64_t> finished;                     // numbers, in the order of their ends
  std::map<int32_t, uint64_t> ids;
  size_t most_in_flight = 0;

 private:
  struct Flying {
    PlannedBatch* batch;
    BatchEnd* end;
  };

  void deposit(const PlannedBatch& batch) {
    FakeWire::Sum& sum = wire_.sums[{batch.process_set, batch.seq}];
    sum.tensors.resize(batch.tensors.size());
    for (size_t t = 0; t < batch.tensors.size(); ++t) {
      sum.tensors[t].resize(size_t(batch.agreed[t]->description.elements()), 0.f);
      if (!batch.tensors[t]) continue;  // joined: zeros
      const auto* in = reinterpret_cast<const float*>(batch.tensors[t]->input);
      for (size_t i = 0; i < sum.tensors[t].size(); ++i) sum.tensors[t][i] += in[i];
    }
    ++sum.deposits;
  }

  bool ready(const PlannedBatch& batch) {
    return aborted_ || wire_.sums.at({batch.process_set, batch.seq}).deposits == batch.layout->size();
  }

  void work() {
    std::unique_lock<std::mutex> lock(wire_.mutex);
    for (;;) {
      std::vector<size_t> choice;
      for (size_t i = 0; i < flying_.size(); ++i)
        if ((!wire_.held || aborted_) && ready(*flying_[i].batch)) choice.push_back(i);
      if (choice.empty()) {
        if (stopping_) return;
        wire_.changed.wait(lock);
        continue;
      }
      const size_t pick = choice[random_() % choice.size()];
      const Flying flight = flying_[pick];
      flying_.erase(flying_.begin() + long(pick));
      finished.push_back(flight.batch->seq);
      const Status status = outcome(*flight.batch);
      lock.unlock();
      flight.end->ended(*flight.batch, status);
      lock.lock();
    }
  }

  Status outcome(PlannedBatch& batch) {
    if (aborted_) return {HVD_UNKNOWN, why_};
    const uint64_t every = wire_.fail_every;
    if (every && batch.seq % every == 0) return {HVD_UNKNOWN, "the device refused batch " + std::to_string(batch.seq)};
    const FakeWire::Sum& sum = wire_.sums.at({batch.process_set, batch.seq});
    for (size_t t = 0; t < batch.tensors.size(); ++t) {
      if (!batch.tensors[t]) continue;
      auto* out = reinterpret_cast<float*>(batch.tensors[t]->place_output(batch.tensors[t]->shape));
      std::copy(sum.tensors[t].begin(), sum.tensors[t].end(), out);
    }
    return {};
  }

  FakeWire& wire_;
  Courier& courier_;
  std::mt19937 random_;
  std::vector<Flying> flying_;
  bool aborted_ = false, stopping_ = false;
  std::string why_;
  std::thread thread_;
};

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_ENGINE_FAKE_PATH_H_
