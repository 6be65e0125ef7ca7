// SPDX-License-Identifier: Apache-2.0
//
// A man in the middle: two socket pairs and the test between them, who passes on what he wants.
#ifndef HOROVOD_TESTS_NET_RELAY_H_
#define HOROVOD_TESTS_NET_RELAY_H_

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "net/link_security.h"
#include "util/fd.h"

namespace hvd::testing {

struct Relay {
  UniqueFd left, right;  // what the two ends hold
  UniqueFd left_inside, right_inside;

  Relay() {
    int a[2], b[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, a) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, b) != 0) std::abort();
    left = UniqueFd(a[0]);
    left_inside = UniqueFd(a[1]);
    right = UniqueFd(b[0]);
    right_inside = UniqueFd(b[1]);
    make_nonblocking(left_inside.get());
  }

  // What the left end has sent so far.
  std::string overheard() {
    std::string all;
    char buffer[1 << 16];
    for (ssize_t n; (n = read(left_inside.get(), buffer, sizeof buffer)) > 0;) all.append(buffer, size_t(n));
    return all;
  }
  void pass_on(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = write(right_inside.get(), bytes.data() + at, bytes.size() - at);
      if (n <= 0) std::abort();
      at += size_t(n);
    }
  }
};

// The seals of both ends of a connection between "rank 0 on a" and "rank 1 on b".
inline std::pair<Seals, Seals> sealed_ends(bool encrypt) {
  const Crypto& crypto = Crypto::load("");
  static const uint8_t key[kSealKeyBytes] = {7};
  auto end = [&](const char* out, const char* in) {
    return Seals{std::make_unique<Seal>(crypto, key, out, Seal::kSender, encrypt),
                 std::make_unique<Seal>(crypto, key, in, Seal::kReceiver, encrypt)};
  };
  return {end("left", "right"), end("right", "left")};
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_NET_RELAY_H_
