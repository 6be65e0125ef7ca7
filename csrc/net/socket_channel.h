// SPDX-License-Identifier: Apache-2.0
// Control messages between the leaders of two hosts.
#pragma once

#include <string>

#include "control/channel.h"
#include "util/fd.h"

namespace hvd {

class SocketChannel : public Channel {
 public:
  // `peer` names the other end in errors: "rank 3 on node7".
  SocketChannel(UniqueFd fd, std::string peer);
  bool receive() override;
  int fd() const override { return fd_.get(); }

 protected:
  size_t write_some(const char* data, size_t n) override;

 private:
  UniqueFd fd_;
  std::string peer_;
};

}  // namespace hvd
