// SPDX-License-Identifier: Apache-2.0
// The calls of libcrypto (OpenSSL 1.1 or 3) that sealing needs, found at run time: nothing is linked, and there is no
// cipher or hash of our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hvd {

struct Crypto {
  // The library at `path`; or, if that is empty, the one this process has loaded (Python's hashlib has), else the
  // system's. Throws Refused with what to install. The first that is found stays.
  static const Crypto& load(const std::string& path);

  using Context = void;  // EVP_CIPHER_CTX
  Context* (*context_new)();
  void (*context_free)(Context*);
  const void* (*aes_256_gcm)();
  int (*init)(Context*, const void* cipher, void* engine, const uint8_t* key, const uint8_t* iv, int encrypt);
  int (*update)(Context*, uint8_t* out, int* out_bytes, const uint8_t* in, int in_bytes);
  int (*final)(Context*, uint8_t* out, int* out_bytes);
  int (*control)(Context*, int type, int argument, void* pointer);
  const void* (*sha256)();
  uint8_t* (*hmac)(const void* hash, const void* key, int key_bytes, const uint8_t* data, size_t n, uint8_t* out,
                   unsigned* out_bytes);
  void (*cleanse)(void*, size_t);

  // What control() is asked for; the values are those of openssl/evp.h.
  enum { kGetTag = 0x10, kSetTag = 0x11 };
};

}  // namespace hvd
