// SPDX-License-Identifier: Apache-2.0
#include "control/gaussian_process.h"

#include <cmath>

#include "tests/check.h"

using namespace hvd;

namespace {

bool near(double a, double b, double error) { return std::abs(a - b) < error; }

}  // namespace

TEST(without_noise_it_goes_through_the_values) {
  GaussianProcess process(0.3, 0);
  std::vector<GaussianProcess::Place> places;
  std::vector<double> values;
  for (int i = 0; i <= 5; ++i) {
    const double x = i / 5.0;
    places.push_back({x, 1 - x});
    values.push_back(1000 + 50 * std::sin(3 * x));
  }
  process.fit(places, values);
  for (size_t i = 0; i < places.size(); ++i) {
    CHECK(near(process.at(places[i]).mean, values[i], 0.1));
    CHECK(process.at(places[i]).deviation < 0.1);
  }
  // Between them it is close, far from them it falls back to the mean and knows that it knows nothing.
  CHECK(near(process.at({0.5, 0.5}).mean, 1000 + 50 * std::sin(1.5), 2));
  CHECK(process.at({0, 0}).deviation > 5);
}

TEST(with_noise_it_smooths) {
  GaussianProcess process(0.3, 0.8);
  process.fit({{0}, {0}, {0}, {1}}, {9, 11, 10, 0});
  const double mean = process.at({0}).mean;
  CHECK(mean > 8 && mean < 10);
}

TEST(one_value_and_equal_values_are_enough) {
  GaussianProcess process(0.3, 0.1);
  process.fit({{0.5}}, {7});
  CHECK(near(process.at({0.5}).mean, 7, 1e-9));
  process.fit({{0.5}, {0.5}, {0.1}}, {7, 7, 7});
  CHECK(near(process.at({0.9}).mean, 7, 1e-9));
}

TEST(what_is_expected_of_a_guess) {
  CHECK(near(expected_improvement({10, 1}, 10), 0.398942, 1e-5));  // half of the bell
  CHECK(near(expected_improvement({20, 1}, 10), 10, 1e-5));
  CHECK(near(expected_improvement({0, 1}, 10), 0, 1e-5));
  CHECK_EQ(expected_improvement({12, 0}, 10), 2.0);
  CHECK_EQ(expected_improvement({8, 0}, 10), 0.0);
}
