// SPDX-License-Identifier: Apache-2.0
// Control messages between the leaders of two hosts, always sealed:
//
//   frame on the wire = u32 length, its tag, the frame, its tag
//
// The length has a tag of its own, so that a changed one is noticed at once instead of being waited for.
#pragma once

#include <string>
#include <string_view>

#include "control/channel.h"
#include "net/seal.h"
#include "util/fd.h"

namespace hvd {

class SocketChannel : public Channel {
 public:
  // `peer` names the other end in errors: "rank 3 on node7".
  SocketChannel(UniqueFd fd, Seals seals, std::string peer);
  bool receive() override;
  int fd() const override { return fd_.get(); }

 protected:
  void wrap(std::string_view frame, std::string* out) override;
  size_t write_some(const char* data, size_t n) override;

 private:
  // Opens what is complete of received_ and hands it to the parser.
  void unwrap();
  void open(char* data, size_t n);

  UniqueFd fd_;
  Seals seals_;
  std::string peer_;
  std::string received_;
  bool length_known_ = false;  // of the frame at the front of received_
  uint32_t length_ = 0;
};

}  // namespace hvd
