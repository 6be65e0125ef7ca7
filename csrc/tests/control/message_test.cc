// SPDX-License-Identifier: Apache-2.0
//
// The message parser against what a broken or hostile peer could send: it either returns a message or throws
// ParseError, and never allocates more than the bytes it was given justify.
#include <algorithm>
#include <random>

#include "control/message.h"
#include "horovod/core.h"
#include "tests/check.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

Variant sample_variant() {
  Variant v;
  v.description.name = "layer1.weight";
  v.description.kind = HVD_ALLTOALL;
  v.description.dtype = HVD_BFLOAT16;
  v.description.prescale = 0.5;
  v.description.shape = {0, 3, 4};
  v.description.group = 77;
  v.description.group_size = 2;
  v.shares = {{0, 5, {2, 3}}, {1, 4, {4, 0}}};
  return v;
}

Plan sample_plan() {
  Plan p;
  p.evicted = {3, 9};
  Batch b;
  b.seq = 12;
  b.kind = HVD_ALLTOALL;
  b.tensors = {{4, true, sample_variant()}, {5, false, {}}};
  p.batches = {b, {}};
  p.batches[1].error = "ranks disagree";
  p.batches[1].error_code = HVD_PRECONDITION;
  return p;
}

std::vector<std::string> samples() {
  return {encode_ready_cached({1, 2, 3}),
          encode_ready_cached({4, 5}, {0, 7}),
          encode_ready_full({sample_variant(), sample_variant()}),
          encode_join(3),
          encode_shutdown({2, "KeyError"}),
          encode_partial({0, "x", 1.5, {0, 2, 5}}),
          encode_plan(sample_plan()),
          encode_need_full(8)};
}

void decode(MessageType type, std::string_view body) {
  Reader in(body);
  switch (type) {
    case MessageType::ReadyCached: decode_ready_cached(in); break;
    case MessageType::NeedFull: decode_ids(in); break;
    case MessageType::ReadyFull: decode_variants(in); break;
    case MessageType::Partial: decode_partial(in); break;
    case MessageType::Plan: decode_plan(in); break;
    case MessageType::Shutdown: decode_shutdown(in); break;
    default: decode_join(in); break;
  }
}

// Feeds bytes in pieces of the given size; returns the number of whole frames that decoded.
int parse(const std::string& bytes, size_t piece) {
  FrameParser parser;
  int frames = 0;
  try {
    for (size_t i = 0; i < bytes.size(); i += piece) {
      parser.feed(bytes.data() + i, std::min(piece, bytes.size() - i));
      MessageType type;
      std::string_view body;
      while (parser.next(&type, &body)) {
        decode(type, body);
        ++frames;
      }
    }
  } catch (const ParseError&) {
    return -1;
  }
  return frames;
}

}  // namespace

TEST(round_trip) {
  const std::string full = encode_ready_full({sample_variant()}, 6);
  Reader in(std::string_view(full).substr(5));
  int32_t last_rank = -1;
  const std::vector<Variant> variants = decode_variants(in, &last_rank);
  CHECK_EQ(last_rank, 6);
  CHECK_EQ(variants.size(), size_t(1));
  CHECK(variants[0].description == sample_variant().description);
  CHECK(variants[0].shares == sample_variant().shares);

  const std::string ids = encode_ready_cached({4, 5}, {0, 7});
  Reader ready(std::string_view(ids).substr(5));
  CHECK(decode_ready_cached(ready).last_ranks == std::vector<int32_t>({0, 7}));

  const std::string plan = encode_plan(sample_plan());
  Reader body(std::string_view(plan).substr(5));
  CHECK_EQ(encode_plan(decode_plan(body)), plan);
}

TEST(any_cut_of_the_stream) {
  std::string stream;
  for (const std::string& s : samples()) stream += s;
  for (size_t piece = 1; piece <= stream.size(); ++piece) CHECK_EQ(parse(stream, piece), int(samples().size()));
}

TEST(truncated_bodies_are_refused) {
  for (const std::string& s : samples()) {
    for (size_t n = 0; n + 5 < s.size(); ++n) {
      bool refused = false;
      try {
        decode(static_cast<MessageType>(s[4]), std::string_view(s).substr(5, n));
      } catch (const ParseError&) {
        refused = true;
      }
      CHECK(refused);
    }
  }
}

TEST(bytes_left_over_are_refused) {
  for (const std::string& s : samples()) {
    bool refused = false;
    try {
      decode(static_cast<MessageType>(s[4]), std::string(s.substr(5)) + '\0');
    } catch (const ParseError&) {
      refused = true;
    }
    CHECK(refused);
  }
}

TEST(oversized_frame_is_refused_at_its_header) {
  for (uint32_t length : {0u, FrameParser::kMaxFrame + 1, 0xffffffffu}) {
    std::string bytes(8, '\1');
    std::memcpy(bytes.data(), &length, sizeof length);
    CHECK_EQ(parse(bytes, 8), -1);
  }
}

// Valid messages with bytes flipped, inserted, removed and spliced.
TEST(mutations_never_crash) {
  std::mt19937_64 random(3);
  const std::vector<std::string> seeds = samples();
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    for (uint64_t n = random() % 6; n > 0; --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = char(random()); break;
        case 1: bytes[at] ^= char(1 << random() % 8); break;
        case 2: bytes.insert(at, 1 + random() % 9, char(random())); break;
        case 3:
          if (bytes.size() > 6) bytes.erase(at, 1 + random() % 4);
          break;
        default: {
          const uint32_t value = random() % 2 ? 0xffffffffu : uint32_t(random() % 4096);
          if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
        }
      }
      if (bytes.empty()) bytes = "x";
    }
    if (random() % 2) {  // an honest length, so that the body is reached
      bytes.resize(std::max(bytes.size(), size_t(5)));
      const uint32_t length = uint32_t(bytes.size() - 4);
      std::memcpy(bytes.data(), &length, sizeof length);
    }
    accepted += parse(bytes, 1 + random() % bytes.size()) > 0;
  }
  CHECK(accepted > 1000);  // the fuzzer does reach the decoders
}

TEST(random_bytes_never_crash) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 100000; ++round) {
    std::string body(random() % 200, '\0');
    for (char& b : body) b = random() % 3 ? char(random() % 4) : char(random());
    try {
      decode(static_cast<MessageType>(random() % 20), body);
    } catch (const ParseError&) {
    }
  }
  CHECK(true);
}
