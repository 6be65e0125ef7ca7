// SPDX-License-Identifier: Apache-2.0
//
// The table by itself: what becomes of submissions when names clash, sets go away and the job ends.
#include "engine/table.h"

#include "tests/check.h"
#include "tests/describe_world.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

struct World {
  std::vector<int> host_of{0, 0};
  std::vector<std::string> names{"here"};
  std::vector<const char*> pointers;
  Topology topology{describe_world(0, host_of, names, &pointers)};
  Metrics metrics;
  Recorder recorder{0};
  Table table{topology, metrics, recorder};
  std::vector<std::string> ends;  // what callbacks said

  World() { table.add_set(0, layout({0, 1})); }

  std::shared_ptr<const SetLayout> layout(std::vector<int> ranks) const {
    return std::make_shared<const SetLayout>(topology, std::move(ranks));
  }

  std::shared_ptr<Submission> submission(const std::vector<std::string>& tensors, int32_t set = 0) {
    auto s = Submission::make(tensors.size());
    s->layout = table.set(set);
    s->context = this;
    s->done_callback = [](void* self, int64_t, int32_t status, const char* text) {
      static_cast<World*>(self)->ends.push_back(status == HVD_OK ? "ok" : text);
    };
    for (size_t i = 0; i < tensors.size(); ++i) {
      s->entries[i].description.name = tensors[i];
      s->entries[i].description.process_set = set;
    }
    return s;
  }

  // "" or why it was refused.
  std::string add(std::shared_ptr<Submission> s) {
    try {
      table.add(std::move(s));
      return "";
    } catch (const Refused& refused) {
      return refused.what();
    }
  }

  std::vector<Tensor*> board(const std::vector<TensorKey>& keys) {
    std::vector<Tensor*> entries;
    table.board(keys, &entries);
    return entries;
  }

  size_t queued() {
    std::vector<Entry*> entries;
    table.take_queued(&entries);
    return entries.size();
  }
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(a_name_is_taken_until_its_entry_ends) {
  World w;
  CHECK_EQ(w.add(w.submission({"a", "b"})), "");
  CHECK(has(w.add(w.submission({"c", "b"})), "same name as another tensor"));
  CHECK_EQ(w.add(w.submission({"c"})), "");  // the refused one left nothing behind
  const auto entries = w.board({{0, "a"}, {0, "b"}});
  w.table.complete(entries, {});
  w.table.complete(entries, {HVD_UNKNOWN, "again"});  // ends once
  CHECK_EQ(w.ends.size(), size_t(1));
  CHECK_EQ(w.ends[0], "ok");
  CHECK_EQ(w.add(w.submission({"a"})), "");
}

TEST(a_submission_checked_against_a_set_that_went_away_is_refused) {
  World w;
  w.table.add_set(1, w.layout({0}));
  auto late = w.submission({"x"}, 1);
  auto later = w.submission({"y"}, 1);
  w.table.remove_set(1);
  CHECK(has(w.add(late), "was removed"));
  w.table.add_set(1, w.layout({0, 1}));  // another set under the same number
  CHECK(has(w.add(later), "was removed"));
  CHECK_EQ(w.add(w.submission({"z"}, 1)), "");
  CHECK_EQ(w.queued(), size_t(1));
}

TEST(removing_a_set_ends_what_waits_there_and_leaves_what_flies) {
  World w;
  w.table.add_set(1, w.layout({0}));
  for (const char* name : {"queued", "announced", "flies"}) CHECK_EQ(w.add(w.submission({name}, 1)), "");
  CHECK_EQ(w.add(w.submission({"elsewhere"})), "");
  const auto flying = w.board({{1, "flies"}});
  w.table.remove_set(1);
  CHECK_EQ(w.ends.size(), size_t(2));
  for (const std::string& end : w.ends) CHECK(has(end, "was removed while it was waiting"));
  // Nothing of the set is announced any more.
  std::vector<Entry*> queue;
  w.table.take_queued(&queue);
  CHECK_EQ(queue.size(), size_t(1));
  CHECK_EQ(queue[0]->description.name, "elsewhere");
  w.table.complete(flying, {});
  CHECK_EQ(w.ends.back(), "ok");
}

TEST(the_end_of_the_job_fails_what_waits_and_refuses_what_comes) {
  World w;
  CHECK_EQ(w.add(w.submission({"waits"})), "");
  CHECK_EQ(w.add(w.submission({"flies"})), "");
  const auto flying = w.board({{0, "flies"}, {0, "of a joined rank"}});
  CHECK(flying[1] == nullptr);
  CHECK(!w.table.over());
  w.table.end({HVD_UNKNOWN, "the end"});
  w.table.end({HVD_UNKNOWN, "a second end"});
  CHECK(w.table.over() && w.table.ended().text == "the end");
  CHECK_EQ(w.ends.size(), size_t(1));
  CHECK_EQ(w.add(w.submission({"late"})), "the end");
  CHECK(w.table.outstanding());
  w.table.complete(flying, w.table.ended());
  CHECK_EQ(w.ends.size(), size_t(2));
  CHECK_EQ(w.ends[1], "the end");
  CHECK(!w.table.outstanding());
}

TEST(an_entry_that_did_not_take_off_waits_again) {
  World w;
  CHECK_EQ(w.add(w.submission({"x"})), "");
  const auto entries = w.board({{0, "x"}});
  w.table.disembark(entries);
  w.table.end({HVD_UNKNOWN, "the end"});
  CHECK_EQ(w.ends.size(), size_t(1));
}

TEST(a_problem_of_this_rank_alone_fails_its_handle_only) {
  World w;
  CHECK_EQ(w.add(w.submission({"x"})), "");
  const auto entries = w.board({{0, "x"}});
  entries[0]->problem = {HVD_UNKNOWN, "no memory for the output"};
  w.table.complete(entries, {});
  CHECK_EQ(w.ends[0], "no memory for the output");
}
