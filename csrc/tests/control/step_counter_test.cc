// SPDX-License-Identifier: Apache-2.0
#include "control/step_counter.h"

#include "tests/check.h"

using namespace hvd;

TEST(a_step_lasts_until_a_name_comes_back) {
  StepCounter counter;
  CHECK(!counter.add("a", 10, 1.0));
  CHECK(!counter.add("b", 20, 1.1));
  auto step = counter.add("b", 20, 3.0);  // gradients need not come in the same order
  CHECK(step.has_value());
  CHECK_EQ(step->seconds, 2.0);
  CHECK_EQ(step->bytes, int64_t(30));
  CHECK(!counter.add("a", 10, 3.1));
  step = counter.add("a", 10, 4.0);
  CHECK(step && step->seconds == 1.0 && step->bytes == 30);
}

TEST(small_things_that_come_often_begin_nothing) {
  StepCounter counter;
  int steps = 0;
  double now = 0;
  for (int i = 0; i < 10; ++i) {
    for (int part = 0; part < 4; ++part) steps += counter.add("loss", 4, now += 0.1).has_value();
    for (const char* name : {"a", "b", "c"}) steps += counter.add(name, 1000, now += 0.1).has_value();
  }
  // The first losses look like steps, as nothing larger is known yet; after that there is one in each round.
  CHECK(steps >= 9 && steps <= 12);
}

TEST(names_that_never_come_back_are_no_steps) {
  StepCounter counter;
  for (int i = 0; i < 200000; ++i) CHECK(!counter.add("noname." + std::to_string(i), 8, i));
}
