// SPDX-License-Identifier: Apache-2.0
//
// The timeline's file and the timeline by themselves: an array at any moment, bounded, from many threads.
#include "watch/timeline.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "horovod/core.h"
#include "tests/check.h"
#include "util/clock.h"
#include "watch/flight_file.h"
#include "watch/trace_file.h"

using namespace hvd;

namespace {

struct Folder {
  Folder() : path(mkdtemp(name)) {}
  ~Folder() {
    if (std::system(("rm -r " + path).c_str()) != 0) std::abort();
  }
  char name[32] = "/tmp/hvd-timeline-XXXXXX";
  std::string path;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The objects of an array of objects, or -1 if it is none: quotes, braces and commas fit.
int elements(const std::string& text) {
  int depth = 0;
  int count = 0;
  bool quoted = false;
  bool comma = true;
  if (text.substr(0, 1) != "[" || text.substr(text.size() - 1) != "]") return -1;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      else if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      if (depth++ == 0) {
        if (!comma) return -1;
        comma = false;
        ++count;
      }
    } else if (c == '}') {
      if (--depth < 0) return -1;
    } else if (c == ',' && depth == 0) {
      if (comma) return -1;
      comma = true;
    } else if (depth == 0 && c != '\n') {
      return -1;
    }
  }
  return depth || quoted || comma ? -1 : count;
}

Timeline::What tensor(const std::string& name) {
  auto what = std::make_shared<Description>();
  what->name = name;
  what->dtype = HVD_FLOAT32;
  return what;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST(the_file_is_an_array_after_every_append_and_stays_within_its_limit) {
  Folder folder;
  const std::string path = folder.path + "/t.json";
  TraceFile file;
  std::string problem;
  CHECK(file.open(path, "{\"head\": 0}", 5000, &problem));
  for (int i = 0; i < 1000; ++i) {
    CHECK(file.append(",\n{\"n\": " + std::to_string(i) + "}"));
    if (file.is_full()) CHECK(file.shorten("{\"head\": 1}"));
    if (i % 50 == 0) CHECK(elements(read(path)) > 0);
  }
  file.patch(9, "7");
  std::string text = read(path);
  CHECK(text.size() < 5100);
  CHECK_EQ(text.substr(0, 13), std::string("[\n{\"head\": 7}"));
  CHECK(text.find("{\"n\": 999}") != std::string::npos);
  CHECK(text.find("{\"n\": 1}") == std::string::npos);
  CHECK(elements(text) > 100);
}

TEST(many_threads_record_and_every_event_arrives_once) {
  Folder folder;
  const std::string path = folder.path + "/t.json";
  Timeline timeline({3, 4, "node \"7\""});
  CHECK(timeline.start(path, true, 0));
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto what = tensor("thread " + std::to_string(t));
      for (int i = 0; i < kEach; ++i) {
        double now = now_s();
        timeline.begin(what, {now, now, now, 8, static_cast<uint64_t>(i), 1});
        timeline.span(what, "PACK", now, now_s());
        timeline.end(what, {2, 3});
        timeline.copied("copied", "COPY_OUT", now, now_s());
        timeline.cycle();
        timeline.step(i, now, i % 2 == 0);
        timeline.mark("a \"mark\"");
      }
    });
  std::atomic<bool> over{false};
  std::thread restless([&] {
    for (int64_t i = 0; !over; ++i) timeline.set_clock_offset(i);
  });
  for (std::thread& t : threads) t.join();
  over = true;
  restless.join();
  timeline.set_clock_offset(-1234567);
  timeline.stop();
  std::string text = read(path);
  CHECK(elements(text) > 0);
  for (const char* part : {"\"ph\": \"B\"", "\"ph\": \"E\"", "\"PACK\"", "\"COPY_OUT\"", "CYCLE_START", "\"STEP\"",
                           "\"MARK\"", "\"NEGOTIATE_ALLREDUCE\""})
    CHECK_EQ(count(text, part), size_t(kThreads * kEach));
  CHECK_EQ(count(text, "\"rank\": 3, \"size\": 4, \"host\": \"node \\\"7\\\"\""), size_t(1));
  CHECK_EQ(count(text, "-1234567}}"), size_t(1));
}

TEST(start_and_stop_while_others_record) {
  Folder folder;
  Timeline timeline({0, 1, "here"});
  std::atomic<bool> over{false};
  std::thread recorder([&] {
    auto what = tensor("x");
    while (!over) {
      timeline.negotiate_begin(what);
      timeline.ready(what, 0);
      timeline.negotiate_end(what, 0);
      timeline.begin(what, {});
      timeline.end(what, {});
    }
  });
  for (int i = 0; i < 5; ++i) {
    const std::string path = folder.path + "/" + std::to_string(i) + ".json";
    CHECK(timeline.start(path, false, 20000));
    CHECK(timeline.start(path, false, 20000));
    usleep(30000);
    timeline.stop();
    CHECK(elements(read(path)) > 0);
  }
  over = true;
  recorder.join();
  CHECK(!timeline.start(folder.path + "/no/such/folder", false, 0));
}

TEST(names_that_are_used_no_more_do_not_fill_the_file) {
  Folder folder;
  const std::string path = folder.path + "/t.json";
  Timeline timeline({0, 1, "here"});
  CHECK(timeline.start(path, false, 50000));
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 50; ++k) {
      auto what = tensor("tensor " + std::to_string(50 * i + k));
      timeline.begin(what, {});
      timeline.end(what, {});
    }
    auto always = tensor("always");
    timeline.begin(always, {});
    timeline.end(always, {});
    // Until the writer has written it.
    const std::string last = "\"tensor " + std::to_string(50 * i + 49) + "\"";
    for (int tries = 0; tries < 60000 && count(read(path), last) == 0; ++tries) usleep(1000);
  }
  timeline.stop();
  std::string text = read(path);
  CHECK(elements(text) > 0);
  CHECK(text.size() < 150000);
  CHECK_EQ(count(text, "\"args\": {\"name\": \"always\"}"), size_t(1));
  CHECK_EQ(count(text, "\"tensor 1\""), size_t(0));
}

TEST(the_path_of_a_rank) {
  CHECK_EQ(timeline_path("t.json", 0), std::string("t.json"));
  CHECK_EQ(timeline_path("a.b/t.json", 3), std::string("a.b/t.rank3.json"));
  CHECK_EQ(timeline_path("a.b/t", 12), std::string("a.b/t.rank12"));
}

TEST(lines_of_several_writers_stay_whole) {
  Folder folder;
  const std::string path = folder.path + "/f.jsonl";
  std::vector<std::thread> threads;
  std::atomic<int> written{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) written += append_line(path, std::string(20000, static_cast<char>('a' + t)));
    });
  for (std::thread& t : threads) t.join();
  CHECK_EQ(written.load(), 80);
  std::istringstream lines(read(path));
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n)
    CHECK(line.size() == 20000 && line.find_first_not_of(line[0]) == std::string::npos);
  CHECK_EQ(n, 80);
}
