// SPDX-License-Identifier: Apache-2.0
// What the control plane asks of a connection to a neighbour in the tree: frames in, frames out, in order. Sending
// never blocks: what finds no room waits here for the next flush.
//
//   host/mailbox_channel   a mailbox in shared memory        net/socket_channel   a socket between hosts
#pragma once

#include <string>
#include <string_view>

#include "control/message.h"

namespace hvd {

class Channel {
 public:
  virtual ~Channel() = default;
  void send(const std::string& frame) {
    wrap(frame, &backlog_);
    flush();
  }
  // True when nothing is left to send.
  bool flush() {
    while (sent_ < backlog_.size()) {
      size_t n = write_some(backlog_.data() + sent_, backlog_.size() - sent_);
      if (n == 0) return false;
      sent_ += n;
    }
    backlog_.clear();
    sent_ = 0;
    return true;
  }
  bool has_backlog() const { return sent_ < backlog_.size(); }
  // Moves what has arrived into the parser; true if anything had.
  virtual bool receive() = 0;
  FrameParser& parser() { return parser_; }
  // To be polled for input, or -1 if a bell announces it.
  virtual int fd() const { return -1; }

 protected:
  // Appends a frame as it travels.
  virtual void wrap(std::string_view frame, std::string* out) { out->append(frame); }
  // Writes as much as fits now, returns how much.
  virtual size_t write_some(const char* data, size_t n) = 0;
  FrameParser parser_;

 private:
  std::string backlog_;
  size_t sent_ = 0;
};

}  // namespace hvd
