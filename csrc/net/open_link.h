// SPDX-License-Identifier: Apache-2.0
// A link that the bootstrap has opened, owned: what nobody takes over is closed, so that its peer sees it.
#pragma once

#include <vector>

#include "horovod/core.h"
#include "util/fd.h"

namespace hvd {

struct OpenLink {
  hvd_link what;  // its fd is not looked at any more
  UniqueFd fd;
};

inline std::vector<OpenLink> adopt_links(const hvd_link* links, int32_t n) {
  std::vector<OpenLink> adopted;
  for (int32_t i = 0; links && i < n; ++i) adopted.push_back({links[i], UniqueFd(links[i].fd)});
  return adopted;
}

}  // namespace hvd
