// SPDX-License-Identifier: Apache-2.0
//
// The record layer: what arrives is what was sent, in order and whole, or the tag does not fit.
#include "net/seal.h"

#include <cstring>
#include <random>
#include <vector>

#include "net/link_security.h"
#include "tests/check.h"
#include "tests/describe_world.h"
#include "util/status.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const uint8_t kKey[kSealKeyBytes] = {1, 2, 3};

const Crypto& crypto() { return Crypto::load(""); }

struct Record {
  std::string data;
  char tag[kSealTagBytes];
};

struct Pair {
  Seal sender, receiver;
  explicit Pair(bool encrypt, uint64_t per_key = Seal::kRecordsPerKey)
      : sender(crypto(), kKey, "test", Seal::kSender, encrypt, per_key),
        receiver(crypto(), kKey, "test", Seal::kReceiver, encrypt, per_key) {}

  Record seal(const std::string& text) {
    Record r{std::string(text.size(), '\0'), {}};
    sender.seal(text.data(), r.data.data(), text.size(), r.tag);
    return r;
  }
  // "!" if the tag does not fit.
  std::string open(Record r) { return receiver.open(r.data.data(), r.data.size(), r.tag) ? r.data : "!"; }
};

}  // namespace

TEST(what_is_sealed_can_be_opened) {
  for (bool encrypt : {false, true}) {
    const Case c(encrypt ? "encrypt" : "authenticate");
    Pair pair(encrypt);
    for (size_t n : {0u, 1u, 4u, 15u, 16u, 17u, 1000u, 65536u, 200000u}) {
      const std::string text(n, 'x');
      const Record r = pair.seal(text);
      if (n > 4) CHECK_EQ(r.data == text, !encrypt);
      CHECK(pair.open(r) == text);
    }
  }
}

TEST(a_flipped_bit_anywhere_is_noticed) {
  for (bool encrypt : {false, true})
    for (size_t bit = 0; bit < 8 * (20 + kSealTagBytes); ++bit) {
      const Case c(encrypt ? "encrypt" : "authenticate", "bit", bit);
      Pair pair(encrypt);
      Record r = pair.seal("twenty bytes of text");
      char* at = bit / 8 < 20 ? &r.data[bit / 8] : &r.tag[bit / 8 - 20];
      *at = char(*at ^ (1 << bit % 8));
      CHECK_EQ(pair.open(r), "!");
    }
}

TEST(replay_reordering_loss_and_truncation_are_noticed) {
  for (bool encrypt : {false, true}) {
    const Case c(encrypt ? "encrypt" : "authenticate");
    {
      Pair pair(encrypt);
      const Record first = pair.seal("first");
      CHECK_EQ(pair.open(first), "first");
      CHECK_EQ(pair.open(first), "!");  // again
    }
    {
      Pair pair(encrypt);
      const Record first = pair.seal("first"), second = pair.seal("second");
      CHECK_EQ(pair.open(second), "!");  // before, or without, the first
    }
    {
      Pair pair(encrypt);
      Record first = pair.seal("first");
      first.data.pop_back();
      CHECK_EQ(pair.open(first), "!");
    }
  }
}

TEST(each_direction_kind_of_link_and_connection_has_a_key_of_its_own) {
  const uint8_t other_key[kSealKeyBytes] = {9};
  Seal sender(crypto(), kKey, "control, from the dialling side", Seal::kSender, false);
  for (int i = 0; i < 3; ++i) {
    char data[4] = {'d', 'a', 't', 'a'}, tag[kSealTagBytes];
    sender.seal(data, data, sizeof data, tag);
    Seal reflected(crypto(), kKey, "control, from the accepting side", Seal::kReceiver, false);
    Seal elsewhere(crypto(), kKey, "watch, from the dialling side", Seal::kReceiver, false);
    Seal stranger(crypto(), other_key, "control, from the dialling side", Seal::kReceiver, false);
    CHECK(!reflected.open(data, sizeof data, tag));
    CHECK(!elsewhere.open(data, sizeof data, tag));
    CHECK(!stranger.open(data, sizeof data, tag));
  }
}

TEST(keys_are_replaced_on_both_sides_alike) {
  for (bool encrypt : {false, true}) {
    Pair pair(encrypt, 3);
    for (int i = 0; i < 20; ++i)
      CHECK_EQ(pair.open(pair.seal("record " + std::to_string(i))), "record " + std::to_string(i));
    Pair never(encrypt);
    Pair often(encrypt, 3);
    Record last;
    for (int i = 0; i < 4; ++i) {
      last = often.seal("x");
      const std::string got = never.open(last);
      CHECK_EQ(got, i < 3 ? "x" : "!");  // the fourth has another key
    }
  }
}

TEST(records_in_pieces_are_the_same_records) {
  std::mt19937 random(1);
  for (bool encrypt : {false, true}) {
    Pair pair(encrypt);
    for (int round = 0; round < 50; ++round) {
      std::string text(random() % 5000, '\0');
      for (char& c : text) c = char(random());
      std::string wire = text;
      char tag[kSealTagBytes];
      auto cut = [&](Seal& seal, std::string& data) {
        seal.begin();
        for (size_t at = 0; at < data.size();) {
          const size_t n = std::min(data.size() - at, size_t(random() % 700 + 1));
          seal.pass(data.data() + at, data.data() + at, n);
          at += n;
        }
      };
      cut(pair.sender, wire);
      pair.sender.make_tag(tag);
      cut(pair.receiver, wire);
      CHECK(pair.receiver.fits_tag(tag));
      CHECK(wire == text);
    }
  }
}

TEST(which_links_are_sealed) {
  const std::vector<int> host_of{0, 0, 1};
  const std::vector<std::string> host_names{"a", "b"};
  std::vector<const char*> names;
  const Topology topology(describe_world(0, host_of, host_names, &names));
  struct Expected {
    const char* mode;
    bool data, encrypt;
  };
  for (const Expected& e : {Expected{"control", false, false}, {"integrity", true, false}, {"encrypt", true, true}}) {
    const Case c(e.mode);
    const LinkSecurity security(topology, e.mode, "");
    for (int kind : {HVD_LINK_CONTROL, HVD_LINK_WATCH, HVD_LINK_DATA_OUT, HVD_LINK_DATA_IN}) {
      hvd_link link{};
      link.kind = kind;
      link.peer = 2;
      link.key[5] = 1;
      const Seals there = security.seals_for(link);
      const bool sealed = kind <= HVD_LINK_WATCH || e.data;
      CHECK_EQ(bool(there.out), sealed);
      CHECK_EQ(bool(there.in), sealed);
      if (sealed) CHECK_EQ(there.out->encrypts(), e.encrypt);
      link.peer = 1;  // on the same host
      CHECK(!security.seals_for(link).out);
    }
    hvd_link keyless{};
    keyless.kind = HVD_LINK_CONTROL;
    keyless.peer = 2;
    bool refused = false;
    try {
      security.seals_for(keyless);
    } catch (const Refused& r) {
      refused = std::string(r.what()).find("rank 2 on b came without a key") != std::string::npos;
    }
    CHECK(refused);
  }
}

TEST(a_world_of_several_hosts_needs_libcrypto_and_says_what_to_install) {
  const std::vector<int> together{0, 0}, apart{0, 1};
  const std::vector<std::string> one{"a"}, two{"a", "b"};
  std::vector<const char*> names, more_names;
  const Topology here(describe_world(0, together, one, &names)), there(describe_world(0, apart, two, &more_names));
  LinkSecurity(here, "encrypt", "/no/such/libcrypto.so");  // one host: nothing to seal
  std::string text;
  try {
    LinkSecurity(there, "control", "/no/such/libcrypto.so");
  } catch (const Refused& refused) {
    text = refused.what();
  }
  for (const char* word : {"HOROVOD_CRYPTO_LIBRARY=/no/such/libcrypto.so", "Install", "libssl3", "openssl"})
    CHECK(text.find(word) != std::string::npos);
}
