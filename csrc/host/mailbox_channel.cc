// SPDX-License-Identifier: Apache-2.0
#include "host/mailbox_channel.h"

#include <algorithm>
#include <cstring>

#include "util/status.h"

namespace hvd {

bool MailboxChannel::receive() {
  uint64_t begin = in_.read.load(std::memory_order_relaxed);
  uint64_t end = in_.written.load(std::memory_order_acquire);
  if (begin == end) return false;
  if (end - begin > kMailboxBytes) throw JobAborted("a mailbox in shared memory is corrupt");
  while (begin < end) {
    size_t at = begin % kMailboxBytes;
    size_t n = std::min<uint64_t>(end - begin, kMailboxBytes - at);
    parser_.feed(in_.bytes + at, n);
    begin += n;
  }
  in_.read.store(begin, std::memory_order_seq_cst);
  if (in_.writer_waits.exchange(0, std::memory_order_seq_cst)) bells_.ring(peer_);
  return true;
}

size_t MailboxChannel::write_some(const char* data, size_t n) {
  uint64_t end = out_.written.load(std::memory_order_relaxed);
  size_t room = kMailboxBytes - (end - out_.read.load(std::memory_order_acquire));
  if (room == 0) {
    out_.writer_waits.store(1, std::memory_order_seq_cst);
    room = kMailboxBytes - (end - out_.read.load(std::memory_order_seq_cst));
    if (room == 0) return 0;
  }
  size_t at = end % kMailboxBytes;
  n = std::min({n, room, kMailboxBytes - at});
  std::memcpy(out_.bytes + at, data, n);
  out_.written.store(end + n, std::memory_order_release);
  bells_.ring(peer_);
  return n;
}

}  // namespace hvd
