// SPDX-License-Identifier: Apache-2.0
#include "net/link_security.h"

#include <algorithm>

#include "util/status.h"

namespace hvd {
namespace {

const char* purpose_of(int kind) {
  switch (kind) {
    case HVD_LINK_CONTROL: return "control";
    case HVD_LINK_WATCH: return "watch";
    case HVD_LINK_QUICK: return "quick";
    default: return "data";
  }
}

}  // namespace

LinkSecurity::LinkSecurity(const Topology& topology, const std::string& mode, const std::string& crypto_library)
    : topology_(topology), data_(mode != "control"), encrypt_(mode == "encrypt") {
  if (topology.hosts() > 1) crypto_ = &Crypto::load(crypto_library);
}

Seals LinkSecurity::seals_for(const hvd_link& link) const {
  bool data = link.kind == HVD_LINK_DATA_OUT || link.kind == HVD_LINK_DATA_IN;
  if (link.peer < 0 || link.peer >= topology_.size)
    throw Refused(HVD_INVALID, "a link to rank " + std::to_string(link.peer) + ", which is not in this world");
  if (!crypto_ || topology_.same_host(link.peer) || (data && !data_)) return {};
  if (std::all_of(std::begin(link.key), std::end(link.key), [](uint8_t byte) { return byte == 0; }))
    throw Refused(HVD_INVALID, "the link to " + topology_.describe(link.peer) + " came without a key");
  std::string purpose = purpose_of(link.kind);
  std::string dialled = purpose + ", from the dialling side";
  std::string accepted = purpose + ", from the accepting side";
  return {std::make_unique<Seal>(*crypto_, link.key, link.dial ? dialled : accepted, Seal::kSender, encrypt_),
          std::make_unique<Seal>(*crypto_, link.key, link.dial ? accepted : dialled, Seal::kReceiver, encrypt_)};
}

}  // namespace hvd
