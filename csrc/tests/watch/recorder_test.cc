// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder and the counters by themselves: what they keep, and that reading along is harmless.
#include "watch/recorder.h"

#include <atomic>
#include <thread>

#include "horovod/core.h"
#include "tests/check.h"
#include "watch/metrics.h"

using namespace hvd;

namespace {

const std::vector<int64_t> kShape{2, 3};

uint64_t queue(Recorder& recorder, std::string_view name, double now) {
  return recorder.queued({name, "ALLREDUCE", HVD_FLOAT32, kShape, 24, 0}, now);
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST(a_collective_is_kept_with_its_stages) {
  Recorder recorder(0);
  uint64_t first = queue(recorder, "gradient \"w\"", 1.0);
  CHECK(recorder.json().find("\"state\": \"queued\"") != std::string::npos);
  recorder.announced(first, 2.0);
  recorder.started(first, 2.5, 3);
  recorder.ended(first, 3.0, false);
  std::string text = recorder.json();
  CHECK(text.find(
            "\"name\": \"gradient \\\"w\\\"\", \"kind\": \"ALLREDUCE\", \"dtype\": \"float32\", \"shape\": [2, 3]") !=
        std::string::npos);
  CHECK(text.find("\"state\": \"failed\"") != std::string::npos);
  CHECK(text.find("\"last_rank\": 3, \"waited_us\": 500000") != std::string::npos);
  uint64_t own = queue(recorder, "own", 4.0);
  recorder.announced(own, 4.0);
  recorder.started(own, 5.0, 0);
  CHECK(recorder.json().find("\"last_rank\": 0, \"waited_us\": 0") != std::string::npos);
}

TEST(what_is_overwritten_is_gone_and_late_words_about_it_are_passed_over) {
  Recorder recorder(0);
  uint64_t first = queue(recorder, "first", 1.0);
  for (size_t i = 0; i < Recorder::kKept; ++i) queue(recorder, "later", 2.0);
  recorder.ended(first, 3.0, false);
  std::string text = recorder.json();
  CHECK_EQ(count(text, "\"seq\""), Recorder::kKept);
  CHECK_EQ(count(text, "first"), size_t(0));
  CHECK_EQ(count(text, "failed"), size_t(0));
}

TEST(names_of_any_length_come_back_cut_at_most) {
  for (size_t length = 0; length < 2 * Recorder::kNameBytes; ++length) {
    Recorder recorder(0);
    queue(recorder, std::string(Recorder::kNameBytes * 2, 'b'), 1.0);
    for (size_t i = 1; i < Recorder::kKept; ++i) queue(recorder, "x", 1.0);
    queue(recorder, std::string(length, 'a'), 1.0);  // into the slot of the long one
    size_t kept = std::min(length, Recorder::kNameBytes - 1);
    CHECK(recorder.json().find("\"name\": \"" + std::string(kept, 'a') + "\"") != std::string::npos);
  }
}

TEST(reading_along_sees_whole_records) {
  Recorder recorder(0);
  std::atomic<bool> over{false};
  std::thread reader([&] {
    do {
      std::string text = recorder.json();
      CHECK_EQ(count(text, "\"name\": \"aaaaaaaaaaaaaaaa\"") + count(text, "\"name\": \"bbbbbbbbbbbbbbbbbbbbbbbb\""),
               count(text, "\"seq\""));
    } while (!over);
  });
  std::atomic<uint64_t> newest{0};
  std::thread ender([&] {
    while (!over) recorder.ended(newest, 1.0, true);
  });
  for (int i = 0; i < 20000; ++i) {
    uint64_t number = queue(recorder, i % 2 ? std::string(16, 'a') : std::string(24, 'b'), 1.0);
    recorder.announced(number, 1.0);
    recorder.started(number, 1.0, 1);
    newest = number;
  }
  over = true;
  reader.join();
  ender.join();
}

TEST(waiting_is_counted_once_and_for_the_rank_that_was_last) {
  Metrics metrics(0, 4);
  metrics.batch_starts(10.0, 9.0, 3);  // one second for rank 3
  metrics.batch_ended({"ALLREDUCE", 1, 8, 100, 10.0}, 10.5);
  metrics.batch_starts(12.0, 9.5, 2);  // ready all the while, but executing until 10.5
  metrics.batch_ended({"ALLREDUCE", 2, 60, 100, 12.0}, 12.5);
  metrics.batch_starts(13.0, 12.7, 0);  // this rank came last itself
  metrics.batch_starts(14.0, 13.5, -1);
  CHECK_EQ(metrics.wait_us.load(), int64_t(2500000));
  std::string text = metrics.json({5, 6, 7});
  CHECK(text.find("\"waited_for_us\": {\"2\": 1500000, \"3\": 1000000}") != std::string::npos);
  CHECK(text.find("\"by_kind\": {\"ALLREDUCE\": {\"count\": 3, \"bytes\": 68, \"us\": 1000000}}") != std::string::npos);
  CHECK(text.find("\"fusion_bytes\": 60, \"fusion_capacity_bytes\": 100") != std::string::npos);
  CHECK(text.find("\"queue_depth\": 5, \"buffer_bytes\": 6, \"restarts\": 7") != std::string::npos);
}

TEST(steps_are_timed_between_marks) {
  Metrics metrics;
  metrics.step(1.0);
  metrics.step(3.0);
  metrics.step(3.5);
  CHECK_EQ(metrics.steps.load(), int64_t(3));
  CHECK_EQ(metrics.step_us.load(), int64_t(2500000));
  CHECK_EQ(metrics.last_step_us.load(), int64_t(500000));
}

TEST(a_time_falls_into_the_bucket_of_its_bound) {
  Histogram histogram;
  for (int64_t us : {0, 10, 11, 20, 99999999}) histogram.add(us);
  std::string text = histogram.json();
  CHECK(text.find("\"counts\": [2, 2, 0,") != std::string::npos);
  CHECK(text.find(", 1], \"sum\": 100000040}") != std::string::npos);
}
