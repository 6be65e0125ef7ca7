// SPDX-License-Identifier: Apache-2.0
// Who is combined with whom when n vectors become one, two at a time: Adasum's tree.
//
// It pairs neighbours. Where n is not a power of two the surplus is folded first:
// 5 vectors: (0,1) 2 3 4 -> (01,2) (3,4) -> one.
#pragma once

#include <vector>

namespace hvd {

struct Pair {
  int left;
  int right;
};

// The pairs of each level; the result takes the left one's place.
inline std::vector<std::vector<Pair>> pair_tree(int n) {
  std::vector<std::vector<Pair>> levels;
  std::vector<int> alive(n);
  for (int i = 0; i < n; ++i) alive[i] = i;
  int power = 1;
  while (power * 2 <= n) power *= 2;
  for (int pairs = n - power; alive.size() > 1; pairs = static_cast<int>(alive.size()) / 2) {
    if (pairs == 0) continue;
    std::vector<Pair> level;
    std::vector<int> next;
    for (size_t i = 0; i < alive.size(); ++i) {
      next.push_back(alive[i]);
      if (static_cast<int>(level.size()) < pairs) {
        level.push_back({alive[i], alive[i + 1]});
        ++i;
      }
    }
    levels.push_back(level);
    alive = next;
  }
  return levels;
}

}  // namespace hvd
