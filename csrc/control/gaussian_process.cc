// SPDX-License-Identifier: Apache-2.0
#include "control/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hvd {

double GaussianProcess::kernel(const Place& a, const Place& b) const {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::exp(-square / (2 * length_ * length_));
}

void GaussianProcess::fit(std::vector<Place> places, const std::vector<double>& values) {
  places_ = std::move(places);
  size_t n = places_.size();
  mean_ = 0;
  for (double v : values) mean_ += v / static_cast<double>(n);
  double variance = 0;
  for (double v : values) variance += (v - mean_) * (v - mean_) / static_cast<double>(n);
  scale_ = variance > 0 ? std::sqrt(variance) : 1;

  lower_.assign(n, std::vector<double>(n, 0));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = kernel(places_[i], places_[j]);
      for (size_t k = 0; k < j; ++k) sum -= lower_[i][k] * lower_[j][k];
      // The least noise keeps the root real where two places are the same.
      if (i == j) lower_[i][i] = std::sqrt(std::max(sum + std::max(noise_, 1e-6), 1e-9));
      else lower_[i][j] = sum / lower_[j][j];
    }
  std::vector<double> scaled;
  for (double v : values) scaled.push_back((v - mean_) / scale_);
  weights_ = forward(std::move(scaled));
}

std::vector<double> GaussianProcess::forward(std::vector<double> b) const {
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= lower_[i][k] * b[k];
    b[i] /= lower_[i][i];
  }
  return b;
}

GaussianProcess::Guess GaussianProcess::at(const Place& place) const {
  std::vector<double> near;
  for (const Place& p : places_) near.push_back(kernel(p, place));
  near = forward(std::move(near));
  double mean = 0;
  double known = 0;
  for (size_t i = 0; i < near.size(); ++i) {
    mean += near[i] * weights_[i];
    known += near[i] * near[i];
  }
  return {mean_ + scale_ * mean, scale_ * std::sqrt(std::max(1 - known, 0.0))};
}

double expected_improvement(const GaussianProcess::Guess& guess, double best) {
  double ahead = guess.mean - best;
  if (guess.deviation <= 0) return std::max(ahead, 0.0);
  double z = ahead / guess.deviation;
  double density = std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
  double below = std::erfc(-z / std::sqrt(2.0)) / 2;
  return ahead * below + guess.deviation * density;
}

}  // namespace hvd
