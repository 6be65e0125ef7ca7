// SPDX-License-Identifier: Apache-2.0
//
// Data between hosts with a man in the middle. Sealed, a changed byte is an error and never a wrong sum.
#include <atomic>
#include <thread>

#include "paths/host/transport.h"
#include "tests/check.h"
#include "tests/net/relay.h"
#include "util/status.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

enum Mode { kPlain, kAuthenticate, kEncrypt };
const char* const kModes[] = {"plain", "authenticate", "encrypt"};

// One transport at each end of a relay; only left to right carries anything.
struct Wire {
  Relay relay;
  std::unique_ptr<Transport> left, right;
  explicit Wire(Mode mode) {
    std::pair<Seals, Seals> ends = mode == kPlain ? std::pair<Seals, Seals>{} : sealed_ends(mode == kEncrypt);
    int unused[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, unused) != 0) std::abort();
    auto one = [](UniqueFd fd, std::unique_ptr<Seal> seal, const char* peer) {
      std::vector<DataLink> links;
      links.push_back({std::move(fd), std::move(seal), peer});
      return links;
    };
    left = make_tcp_transport(one(std::move(relay.left), std::move(ends.first.out), "rank 1 on b"),
                              one(UniqueFd(unused[0]), nullptr, "rank 1 on b"), [] {});
    right = make_tcp_transport(one(UniqueFd(unused[1]), nullptr, "rank 0 on a"),
                               one(std::move(relay.right), std::move(ends.second.in), "rank 0 on a"), [] {});
  }
};

// Sends the pieces through the relay, which changes byte `flip` (if any); what the other end got, or its error.
struct Delivery {
  std::string got, error, wire;
};
Delivery deliver(Mode mode, std::vector<std::string> pieces, const std::vector<size_t>& cuts, long flip) {
  Wire wire(mode);
  size_t total = 0;
  Pieces out, in;
  for (std::string& p : pieces) {
    out.push_back({p.data(), p.size()});
    total += p.size();
  }
  Delivery d;
  d.got.resize(total);
  size_t at = 0;
  for (size_t n : cuts) {
    in.push_back({d.got.data() + at, n});
    at += n;
  }
  in.push_back({d.got.data() + at, total - at});
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    wire.left->exchange(0, out, {});
    sent = true;
  });
  std::thread relay([&] {
    for (;;) {
      const bool last = sent;
      std::string bytes = wire.relay.overheard();
      if (bytes.empty()) {
        if (last) return;
        std::this_thread::yield();
        continue;
      }
      const long here = flip - long(d.wire.size());
      d.wire += bytes;
      if (flip >= 0 && here >= 0 && here < long(bytes.size())) bytes[size_t(here)] = char(bytes[size_t(here)] ^ 4);
      wire.relay.pass_on(bytes);
    }
  });
  try {
    wire.right->exchange(0, {}, in);
  } catch (const JobAborted& aborted) {
    d.error = aborted.what();
  }
  sender.join();
  relay.join();
  return d;
}

std::string pattern(size_t n) {
  std::string s(n, '\0');
  for (size_t i = 0; i < n; ++i) s[i] = char(i * 7 + i / 251);
  return s;
}

}  // namespace

TEST(bytes_arrive_however_they_are_cut) {
  for (Mode mode : {kPlain, kAuthenticate, kEncrypt})
    for (size_t n : {size_t(0), size_t(1), size_t(1000), size_t(65536), size_t(65537), size_t(200001)}) {
      const Case c(kModes[mode], "bytes", n);
      const std::string all = pattern(n);
      std::vector<std::string> pieces;
      for (size_t at = 0; at < n; at += n / 40 + 1) pieces.push_back(all.substr(at, n / 40 + 1));
      pieces.insert(pieces.begin(), "");
      const Delivery d = deliver(mode, pieces, {n / 3, 0, n / 5}, -1);
      CHECK_EQ(d.error, "");
      CHECK(d.got == all);
      const size_t records = (n + 65535) / 65536;
      CHECK_EQ(d.wire.size(), n + (mode == kPlain ? 0 : records * kSealTagBytes));
    }
}

TEST(a_changed_byte_is_an_error_and_never_a_wrong_sum) {
  const size_t n = 150000;
  for (Mode mode : {kAuthenticate, kEncrypt})
    for (long flip :
         {0L, 1L, 40000L, 65535L, 65536L, 65551L, 65552L, 140000L, long(n + 2 * 16), long(n + 3 * 16 - 1)}) {
      const Case c(kModes[mode], "byte", flip);
      const Delivery d = deliver(mode, {pattern(n)}, {}, flip);
      CHECK(d.error.find("a message from rank 0 on a was altered on its way") != std::string::npos);
    }
}

TEST(without_a_seal_nobody_notices) {
  const Delivery d = deliver(kPlain, {pattern(1000)}, {}, 500);
  CHECK_EQ(d.error, "");
  CHECK(d.got != pattern(1000));
}

TEST(the_payload_shows_on_the_wire_unless_it_is_encrypted) {
  const std::string secret = "weights nobody may see";
  for (Mode mode : {kPlain, kAuthenticate, kEncrypt}) {
    const Delivery d = deliver(mode, {pattern(70000) + secret + pattern(500)}, {}, -1);
    CHECK_EQ(d.error, "");
    CHECK_EQ(d.wire.find(secret) == std::string::npos, mode == kEncrypt);
  }
}
