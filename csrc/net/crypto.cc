// SPDX-License-Identifier: Apache-2.0
#include "net/crypto.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "util/status.h"

namespace hvd {
namespace {

// The path of a libcrypto that is mapped already, e.g. "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", also where a wheel
// has renamed it ("libcrypto-1ef2a3.so.1.1"). "" if there is none.
std::string loaded_library() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* name = slash ? slash + 1 : info->dlpi_name;
        if (std::strncmp(name, "libcrypto", 9) != 0 || !std::strstr(name, ".so")) return 0;
        *static_cast<std::string*>(out) = info->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

template <typename Function>
bool find(void* library, const char* name, Function* where) {
  *reinterpret_cast<void**>(where) = dlsym(library, name);
  return *where != nullptr;
}

std::unique_ptr<Crypto> calls_of(void* library) {
  auto c = std::make_unique<Crypto>();
  bool complete = library && find(library, "EVP_CIPHER_CTX_new", &c->context_new) &&
                  find(library, "EVP_CIPHER_CTX_free", &c->context_free) &&
                  find(library, "EVP_aes_256_gcm", &c->aes_256_gcm) && find(library, "EVP_CipherInit_ex", &c->init) &&
                  find(library, "EVP_CipherUpdate", &c->update) && find(library, "EVP_CipherFinal_ex", &c->final) &&
                  find(library, "EVP_CIPHER_CTX_ctrl", &c->control) && find(library, "EVP_sha256", &c->sha256) &&
                  find(library, "HMAC", &c->hmac) && find(library, "OPENSSL_cleanse", &c->cleanse);
  return complete ? std::move(c) : nullptr;
}

std::unique_ptr<Crypto> open_library(const std::string& path) {
  if (!path.empty()) return calls_of(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (std::string loaded = loaded_library(); !loaded.empty())
    if (auto crypto = calls_of(dlopen(loaded.c_str(), RTLD_NOW | RTLD_NOLOAD))) return crypto;
  for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"})
    if (auto crypto = calls_of(dlopen(name, RTLD_NOW | RTLD_LOCAL))) return crypto;
  return nullptr;
}

}  // namespace

const Crypto& Crypto::load(const std::string& path) {
  static std::mutex mutex;
  static std::string from;
  static const Crypto* library = nullptr;  // never unloaded: seals may outlive any engine
  std::lock_guard<std::mutex> lock(mutex);
  if (library && path == from) return *library;
  std::unique_ptr<Crypto> opened = open_library(path);
  if (!opened)
    throw Refused(
        HVD_PRECONDITION,
        (path.empty() ? std::string("no libcrypto was found")
                      : "HOROVOD_CRYPTO_LIBRARY=" + path + " is not a usable libcrypto") +
            ": what the ranks of different hosts tell each other is sealed with it. Install OpenSSL's library "
            "(Debian, Ubuntu: libssl3; Red Hat: openssl-libs; conda: openssl), or set HOROVOD_CRYPTO_LIBRARY "
            "to its path.");
  library = opened.release();
  from = path;
  return *library;
}

}  // namespace hvd
