// SPDX-License-Identifier: Apache-2.0
// The record layer: what goes from one host to another is cut into records, each with a tag that only the two ends can
// make. Altering, replaying, reordering or leaving out a record makes the next tag wrong. One class serves the control,
// watch and data links.
//
//   AES-256-GCM, one key for each direction, derived from the session key of the authenticated connection.
//   The nonce is the record's number, which both ends count: it is never sent and never used twice.
//   Encrypting: the payload is the cipher's text. Authenticating only: it is its additional data and travels as it is.
//   After 2^20 records the key is replaced by one derived from it, well before GCM's limits.
//
// Cutting a connection short cannot be hidden by a tag. It ends the job like any lost connection does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/crypto.h"

namespace hvd {

constexpr size_t kSealKeyBytes = 32;
constexpr size_t kSealTagBytes = 16;

// One direction of one connection. For one thread at a time.
class Seal {
 public:
  enum Role { kSender, kReceiver };
  static constexpr uint64_t kRecordsPerKey = 1 << 20;

  // `purpose` keeps directions and kinds of links apart, e.g. "control, from the dialling side".
  Seal(const Crypto& crypto, const uint8_t* session_key, std::string_view purpose, Role role, bool encrypt,
       uint64_t records_per_key = kRecordsPerKey);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  bool encrypts() const { return encrypt_; }

  // A record in pieces: begin, any number of passes, end. When encrypting, `out` receives the other form of the bytes
  // (it may be `in`); otherwise they are only looked at.
  void begin();
  void pass(const char* in, char* out, size_t n);
  void make_tag(char* tag);                      // the sender's end
  [[nodiscard]] bool fits_tag(const char* tag);  // the receiver's: false if anything is not as it was sent

  // A record in one go, from `in` to `out` (which may be `in`).
  void seal(const char* in, char* out, size_t n, char* tag);
  [[nodiscard]] bool open(char* data, size_t n, const char* tag);

 private:
  using Key = std::array<uint8_t, kSealKeyBytes>;
  Key derive(const uint8_t* key, std::string_view purpose) const;
  void use_key();

  const Crypto& crypto_;
  const Role role_;
  const bool encrypt_;
  const uint64_t records_per_key_;
  Crypto::Context* context_;
  Key key_;
  uint64_t next_ = 0;  // number of the next record
};

// Both directions of a connection; null where nothing is sealed.
struct Seals {
  std::unique_ptr<Seal> out;
  std::unique_ptr<Seal> in;
};

// The text of a job that ends because a tag did not fit. peer: "rank 3 on node7".
std::string altered_text(const std::string& peer);

}  // namespace hvd
