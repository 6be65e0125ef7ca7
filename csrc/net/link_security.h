// SPDX-License-Identifier: Apache-2.0
// Which links are sealed, and how: HOROVOD_LINK_SECURITY.
//
//               control and watch links        data links
//   control     authenticated                  as they are
//   integrity   authenticated                  authenticated
//   encrypt     encrypted                      encrypted
//
// Quick links carry both: what is said in a round is sealed as control links are, its payload as data links are.
// Links within a host (loopback) and shared memory are not sealed: who could alter them could alter the processes.
#pragma once

#include <string>

#include "net/open_link.h"
#include "net/seal.h"
#include "world/topology.h"

namespace hvd {

class LinkSecurity {
 public:
  // mode: "control", "integrity" or "encrypt". Throws Refused when the world spans hosts and there is no libcrypto.
  LinkSecurity(const Topology& topology, const std::string& mode, const std::string& crypto_library);

  // Throws Refused for a link between hosts that came without a key.
  Seals seals_for(const hvd_link& link) const;
  bool seals_data() const { return data_; }

 private:
  const Topology& topology_;
  const bool data_;
  const bool encrypt_;
  const Crypto* crypto_ = nullptr;  // null: a world of one host
};

}  // namespace hvd
