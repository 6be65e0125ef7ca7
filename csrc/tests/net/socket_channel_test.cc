// SPDX-License-Identifier: Apache-2.0
//
// Control messages with a man in the middle: whatever he does, either every frame arrives as it was sent, or the
// channel says that it was altered (or just lost).
#include "net/socket_channel.h"

#include <random>

#include "tests/check.h"
#include "tests/net/relay.h"
#include "util/status.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// Frames that came through, and what ended it ("" if nothing did).
struct Heard {
  std::vector<std::vector<uint32_t>> ids;
  std::string end;
};

Heard listen(Channel& channel) {
  Heard heard;
  try {
    channel.receive();
    MessageType type;
    std::string_view body;
    while (channel.parser().next(&type, &body)) {
      Reader in(body);
      heard.ids.push_back(decode_ready_cached(in).ids);
    }
  } catch (const JobAborted& aborted) {
    heard.end = aborted.what();
  }
  return heard;
}

struct Line {
  Relay relay;
  std::pair<Seals, Seals> ends;
  SocketChannel left, right;
  explicit Line(bool encrypt)
      : ends(sealed_ends(encrypt)),
        left(std::move(relay.left), std::move(ends.first), "rank 1 on b"),
        right(std::move(relay.right), std::move(ends.second), "rank 0 on a") {}
};

}  // namespace

TEST(frames_arrive_in_any_cut_of_the_stream) {
  for (bool encrypt : {false, true})
    for (size_t piece : {1u, 3u, 20u, 21u, 37u, 1000u}) {
      const Case c(encrypt ? "encrypt" : "authenticate", "piece", piece);
      Line line(encrypt);
      for (uint32_t i = 0; i < 5; ++i) line.left.send(encode_ready_cached(std::vector<uint32_t>(i * 40, i)));
      const std::string bytes = line.relay.overheard();
      size_t frames = 0;
      for (size_t at = 0; at < bytes.size(); at += piece) {
        line.relay.pass_on(bytes.substr(at, piece));
        const Heard heard = listen(line.right);
        CHECK_EQ(heard.end, "");
        for (const auto& ids : heard.ids) CHECK_EQ(ids.size(), 40 * frames++);
      }
      CHECK_EQ(frames, size_t(5));
    }
}

TEST(every_single_altered_byte_is_noticed_at_once) {
  for (bool encrypt : {false, true}) {
    std::string bytes;
    {
      Line line(encrypt);
      line.left.send(encode_ready_cached({1, 2, 3}));
      bytes = line.relay.overheard();
    }
    for (size_t at = 0; at < bytes.size(); ++at)
      for (int bit : {0, 7}) {
        const Case c(encrypt ? "encrypt" : "authenticate", "byte", at, "bit", bit);
        Line line(encrypt);
        line.left.send(encode_ready_cached({1, 2, 3}));
        std::string altered = line.relay.overheard();
        altered[at] = char(altered[at] ^ (1 << bit));
        line.relay.pass_on(altered);
        const Heard heard = listen(line.right);
        CHECK_EQ(heard.ids.size(), size_t(0));
        CHECK(heard.end.find("a message from rank 0 on a was altered on its way") != std::string::npos);
      }
  }
}

TEST(replayed_dropped_swapped_and_reflected_frames_are_noticed) {
  for (bool encrypt : {false, true})
    for (const std::string attack : {"replay", "drop", "swap", "reflect"}) {
      const Case c(encrypt ? "encrypt" : "authenticate", attack);
      Line line(encrypt);
      std::vector<std::string> frames;
      for (uint32_t i = 0; i < 3; ++i) {
        line.left.send(encode_ready_cached({i}));
        frames.push_back(line.relay.overheard());
      }
      line.relay.pass_on(frames[0]);
      CHECK_EQ(listen(line.right).ids.size(), size_t(1));
      if (attack == "replay") line.relay.pass_on(frames[0]);
      if (attack == "drop") line.relay.pass_on(frames[2]);
      if (attack == "swap") line.relay.pass_on(frames[2] + frames[1]);
      if (attack == "reflect") {
        const ssize_t n = write(line.relay.left_inside.get(), frames[1].data(), frames[1].size());
        CHECK(n > 0);
        CHECK(listen(line.left).end.find("was altered") != std::string::npos);
        continue;
      }
      const Heard heard = listen(line.right);
      CHECK_EQ(heard.ids.size(), size_t(0));
      CHECK(heard.end.find("was altered") != std::string::npos);
    }
}

TEST(a_truncated_stream_is_a_lost_connection_and_never_a_frame) {
  std::string bytes;
  {
    Line line(false);
    line.left.send(encode_ready_cached({1, 2, 3}));
    bytes = line.relay.overheard();
  }
  for (size_t keep = 0; keep < bytes.size(); ++keep) {
    Line line(false);
    line.left.send(encode_ready_cached({1, 2, 3}));
    line.relay.pass_on(line.relay.overheard().substr(0, keep));
    line.relay.right_inside.reset();
    Heard heard = listen(line.right);
    if (heard.end.empty()) heard = listen(line.right);
    CHECK_EQ(heard.ids.size(), size_t(0));
    CHECK(heard.end.find("lost the control connection to rank 0 on a") != std::string::npos);
  }
}

TEST(nothing_of_an_encrypted_frame_shows) {
  for (bool encrypt : {false, true}) {
    Line line(encrypt);
    Description d;
    d.name = "the name of a secret layer";
    line.left.send(encode_ready_full({{d, {}}}));
    CHECK_EQ(line.relay.overheard().find("secret layer") == std::string::npos, encrypt);
  }
}

TEST(random_garbage_is_refused) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Line line(round % 2 == 0);
    std::string bytes(20 + random() % 300, '\0');
    for (char& c : bytes) c = char(random());
    line.relay.pass_on(bytes);
    CHECK(listen(line.right).end.find("was altered") != std::string::npos);
  }
}
