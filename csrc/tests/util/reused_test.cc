// SPDX-License-Identifier: Apache-2.0
#include "util/reused.h"

#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace {

struct Piece {
  explicit Piece(int value) : value(value) {}
  char before[40] = {};
  int value;
};

std::shared_ptr<Piece> make(int value) { return std::allocate_shared<Piece>(hvd::Reused<Piece>(), value); }

}  // namespace

TEST(objects_are_made_anew) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Piece>> all;
    std::set<Piece*> places;
    for (int i = 0; i < 5000; ++i) {  // more than are kept
      all.push_back(make(i));
      places.insert(all.back().get());
    }
    CHECK_EQ(places.size(), all.size());
    for (int i = 0; i < 5000; ++i) {
      CHECK_EQ(all[static_cast<size_t>(i)]->value, i);
      CHECK_EQ(int{all[static_cast<size_t>(i)]->before[39]}, 0);
      std::memset(all[static_cast<size_t>(i)]->before, 1, sizeof Piece::before);
    }
  }
}

TEST(several_at_once_are_left_to_the_system) {
  std::vector<Piece, hvd::Reused<Piece>> pieces;
  for (int i = 0; i < 100; ++i) pieces.emplace_back(i);  // 1, 2, 4, ... pieces
  for (int i = 0; i < 100; ++i) CHECK_EQ(pieces[static_cast<size_t>(i)].value, i);
}

TEST(threads_give_back_what_others_took) {
  std::vector<std::shared_ptr<Piece>> made(4000);
  auto fill = [&](size_t from) {
    for (size_t i = from; i < made.size(); i += 2) made[i] = make(static_cast<int>(i));
  };
  for (int round = 0; round < 5; ++round) {
    std::thread other(fill, 1);
    fill(0);
    other.join();
    for (size_t i = 0; i < made.size(); ++i) CHECK_EQ(made[i]->value, static_cast<int>(i));
    std::thread drops([&] {
      for (size_t i = 0; i < made.size(); i += 2) made[i].reset();
    });
    for (size_t i = 1; i < made.size(); i += 2) made[i].reset();
    drops.join();
  }
}
