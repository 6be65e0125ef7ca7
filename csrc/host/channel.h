// SPDX-License-Identifier: Apache-2.0
// A byte stream to one neighbour of the control tree: a mailbox in shared memory or a socket. Sending never
// blocks: what finds no room waits here, in order, for the next flush.
#pragma once

#include <memory>
#include <string>

#include "control/message.h"
#include "host/segment.h"

namespace hvd {

class Channel {
 public:
  virtual ~Channel() = default;
  void send(const std::string& frame) {
    backlog_ += frame;
    flush();
  }
  // True when nothing is left to send.
  bool flush();
  bool has_backlog() const { return sent_ < backlog_.size(); }
  // Moves what has arrived into the parser; true if anything had.
  virtual bool receive() = 0;
  FrameParser& parser() { return parser_; }
  // To be polled for input, or -1 if a bell announces it.
  virtual int fd() const { return -1; }

 protected:
  // Writes as much as fits now, returns how much.
  virtual size_t write_some(const char* data, size_t n) = 0;
  FrameParser parser_;

 private:
  std::string backlog_;
  size_t sent_ = 0;
};

// Rings the bell of a local rank: a counter to spin on, and an eventfd for those who sleep.
class Bells {
 public:
  Bells(Segment& segment, const int* doorbells) : segment_(segment), doorbells_(doorbells) {}
  void ring(int local);

 private:
  Segment& segment_;
  const int* doorbells_;
};

class MailboxChannel : public Channel {
 public:
  // peer: the local rank whose bell is rung after writing, and after making room for it.
  MailboxChannel(Mailbox& out, Mailbox& in, Bells& bells, int peer) : out_(out), in_(in), bells_(bells), peer_(peer) {}
  bool receive() override;

 protected:
  size_t write_some(const char* data, size_t n) override;

 private:
  Mailbox& out_;
  Mailbox& in_;
  Bells& bells_;
  int peer_;
};

class SocketChannel : public Channel {
 public:
  // Owns fd, which becomes non-blocking. `peer` names the other end in errors.
  SocketChannel(int fd, std::string peer);
  ~SocketChannel() override;
  bool receive() override;
  int fd() const override { return fd_; }

 protected:
  size_t write_some(const char* data, size_t n) override;

 private:
  int fd_;
  std::string peer_;
};

}  // namespace hvd
