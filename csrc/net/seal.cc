// SPDX-License-Identifier: Apache-2.0
#include "net/seal.h"

#include <algorithm>
#include <cstring>

#include "util/status.h"

namespace hvd {
namespace {

constexpr size_t kMaxPass = 1 << 30;  // libcrypto counts with int

void verify(bool done) {
  if (!done) throw JobAborted("libcrypto refused to work");
}

}  // namespace

Seal::Seal(const Crypto& crypto, const uint8_t* session_key, std::string_view purpose, Role role, bool encrypt,
           uint64_t records_per_key)
    : crypto_(crypto),
      role_(role),
      encrypt_(encrypt),
      records_per_key_(records_per_key),
      context_(crypto.context_new()),
      key_(derive(session_key, purpose)) {
  verify(context_ != nullptr);
  use_key();
}

Seal::~Seal() {
  crypto_.context_free(context_);
  crypto_.cleanse(key_.data(), key_.size());
}

Seal::Key Seal::derive(const uint8_t* key, std::string_view purpose) const {
  Key derived;
  unsigned n = 0;
  std::string label = "horovod link, " + std::string(purpose);
  verify(crypto_.hmac(crypto_.sha256(), key, kSealKeyBytes, reinterpret_cast<const uint8_t*>(label.data()),
                      label.size(), derived.data(), &n) &&
         n == derived.size());
  return derived;
}

void Seal::use_key() {
  verify(crypto_.init(context_, crypto_.aes_256_gcm(), nullptr, key_.data(), nullptr, role_ == kSender) == 1);
}

void Seal::begin() {
  if (next_ > 0 && next_ % records_per_key_ == 0) {
    key_ = derive(key_.data(), "next key");
    use_key();
  }
  uint8_t nonce[12] = {};
  for (int i = 0; i < 8; ++i) nonce[4 + i] = static_cast<uint8_t>(next_ >> (56 - 8 * i));
  ++next_;
  verify(crypto_.init(context_, nullptr, nullptr, nullptr, nonce, -1) == 1);
}

void Seal::pass(const char* in, char* out, size_t n) {
  for (size_t at = 0; at < n;) {
    int step = static_cast<int>(std::min(n - at, kMaxPass));
    int done = 0;
    auto* to = encrypt_ ? reinterpret_cast<uint8_t*>(out + at) : nullptr;
    verify(crypto_.update(context_, to, &done, reinterpret_cast<const uint8_t*>(in + at), step) == 1);
    at += static_cast<size_t>(step);
  }
}

void Seal::make_tag(char* tag) {
  uint8_t rest[16];
  int n = 0;
  verify(crypto_.final(context_, rest, &n) == 1 && crypto_.control(context_, Crypto::kGetTag, kSealTagBytes, tag) == 1);
}

bool Seal::fits_tag(const char* tag) {
  uint8_t expected[kSealTagBytes];
  std::memcpy(expected, tag, sizeof expected);
  uint8_t rest[16];
  int n = 0;
  verify(crypto_.control(context_, Crypto::kSetTag, kSealTagBytes, expected) == 1);
  return crypto_.final(context_, rest, &n) == 1;
}

void Seal::seal(const char* in, char* out, size_t n, char* tag) {
  begin();
  pass(in, out, n);
  if (!encrypt_ && in != out && n) std::memcpy(out, in, n);
  make_tag(tag);
}

bool Seal::open(char* data, size_t n, const char* tag) {
  begin();
  pass(data, data, n);
  return fits_tag(tag);
}

std::string altered_text(const std::string& peer) {
  return "a message from " + peer +
         " was altered on its way: its seal does not fit. Somebody or something on the network between the hosts "
         "changes "
         "what the ranks send to each other. Nothing of it was used; find out who, before you start the job again.";
}

}  // namespace hvd
