// SPDX-License-Identifier: Apache-2.0
// Control messages between ranks of one host: two rings of bytes in shared memory. Nobody else can write there, so
// nothing is sealed.
#pragma once

#include "control/channel.h"
#include "host/doorbells.h"
#include "host/segment.h"

namespace hvd {

class MailboxChannel : public Channel {
 public:
  // peer: the local rank whose bell is rung after writing, and after making room for it.
  MailboxChannel(Mailbox& out, Mailbox& in, Doorbells& bells, int peer)
      : out_(out), in_(in), bells_(bells), peer_(peer) {}
  bool receive() override;

 protected:
  size_t write_some(const char* data, size_t n) override;

 private:
  Mailbox& out_;
  Mailbox& in_;
  Doorbells& bells_;
  int peer_;
};

}  // namespace hvd
