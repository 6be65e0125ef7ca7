// SPDX-License-Identifier: Apache-2.0
// Tensors that travel together, seen as one run of bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd {

// One tensor, or the part of it that a rank wants back. in == nullptr: zeros (a joined rank).
// out == nullptr: the result is not wanted here.
struct Span {
  const char* in;
  char* out;
  size_t bytes;
};

class Spans {
 public:
  void clear() {
    spans_.clear();
    starts_.clear();
  }
  void add(const void* in, void* out, size_t bytes);
  size_t bytes() const { return starts_.empty() ? 0 : starts_.back() + spans_.back().bytes; }
  const std::vector<Span>& all() const { return spans_; }
  // Calls f(part of a span, offset from `begin`) for the parts that cover [begin, end).
  template <typename F>
  void each(size_t begin, size_t end, F f) const;
  // The part that is all of [begin, end), its input and its result; else none, of 0 bytes.
  Span within(size_t begin, size_t end) const;
  // Copies `from` to the outputs that cover [begin, end); around the cache when the whole is `large`.
  void unpack(size_t begin, size_t end, const char* from, bool large) const;

 private:
  size_t index_at(size_t offset) const;
  std::vector<Span> spans_;
  std::vector<size_t> starts_;
};

// Writing around the cache only pays for results that do not fit into it.
constexpr size_t kLargeBytes = 16 << 20;

inline size_t Spans::index_at(size_t offset) const {
  size_t low = 0;
  size_t high = spans_.size();
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    (starts_[middle] <= offset ? low : high) = middle;
  }
  return low;
}

inline Span Spans::within(size_t begin, size_t end) const {
  size_t i = index_at(begin);
  if (begin >= end || i >= spans_.size()) return {};
  const Span& span = spans_[i];
  size_t inside = begin - starts_[i];
  if (!span.in || !span.out || inside > span.bytes || end - begin > span.bytes - inside) return {};
  return {span.in + inside, span.out + inside, end - begin};
}

template <typename F>
void Spans::each(size_t begin, size_t end, F f) const {
  if (begin >= end) return;
  for (size_t i = index_at(begin), at = begin; at < end; ++i) {
    const Span& span = spans_[i];
    size_t inside = at - starts_[i];
    if (inside >= span.bytes) continue;
    size_t n = span.bytes - inside < end - at ? span.bytes - inside : end - at;
    f(Span{span.in ? span.in + inside : nullptr, span.out ? span.out + inside : nullptr, n}, at - begin);
    at += n;
  }
}

}  // namespace hvd
