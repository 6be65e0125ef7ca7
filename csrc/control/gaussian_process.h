// SPDX-License-Identifier: Apache-2.0
// A guess at a function from a few noisy values of it: regression with a Gaussian process over [0, 1]^n.
#pragma once

#include <vector>

namespace hvd {

class GaussianProcess {
 public:
  using Place = std::vector<double>;
  struct Guess {
    double mean;
    double deviation;
  };

  // length: distance over which values have to do with each other. noise: variance of a value's error, in units of the
  // variance of all values.
  GaussianProcess(double length, double noise) : length_(length), noise_(noise) {}

  void fit(std::vector<Place> places, const std::vector<double>& values);
  Guess at(const Place& place) const;

 private:
  double kernel(const Place& a, const Place& b) const;
  // Solves L x = b, with L the lower triangle of the Cholesky decomposition.
  std::vector<double> forward(std::vector<double> b) const;

  const double length_;
  const double noise_;
  std::vector<Place> places_;
  std::vector<std::vector<double>> lower_;
  std::vector<double> weights_;  // L^-1 times the values, centred and scaled
  double mean_ = 0;
  double scale_ = 1;
};

// By how much a place with this guess is expected to exceed `best`; a chance of more counts, one of less does not.
double expected_improvement(const GaussianProcess::Guess& guess, double best);

}  // namespace hvd
