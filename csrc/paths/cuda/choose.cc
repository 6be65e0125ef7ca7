// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/choose.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "paths/cuda/nccl_abi.h"

namespace hvd::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string of_rank(const Candidate& member, const std::string& why) {
  return "rank " + std::to_string(member.rank) + ": " + why;
}

// Empty: possible.
std::string no_direct(const std::vector<Candidate>& members) {
  if (members.size() > kMostPeers)
    return std::to_string(members.size()) + " ranks are more than the " + std::to_string(kMostPeers) +
           " it is made for";
  for (const Candidate& m : members)
    if (m.host != members[0].host) return "the ranks are on several hosts";
  for (const Candidate& m : members)
    if (!m.no_direct.empty()) return of_rank(m, m.no_direct);
  return "";
}

std::string no_nccl(const std::vector<Candidate>& members) {
  for (const Candidate& m : members) {
    if (!m.nccl) return of_rank(m, m.no_nccl);
    if (m.nccl / 100 != members[0].nccl / 100)
      return "rank " + std::to_string(members[0].rank) + " has NCCL " + version_text(members[0].nccl) + ", rank " +
             std::to_string(m.rank) + " has " + version_text(m.nccl) + ": install the same everywhere";
  }
  return "";
}

// A communicator sends and receives everything on one thread, which copies 3 to 4 GB/s from and to sockets: several do
// so side by side. Each keeps a core busy meanwhile, and half of the cores are for others. Where NCCL has something
// better than sockets between any two members, the sockets may not be what takes the time, and one is enough.
constexpr int kMostCommunicators = 4;

int communicators(const std::vector<Candidate>& members) {
  for (const Candidate& m : members)
    if (m.nccl < kNcclWithSplit) return 1;
  if (members[0].nccl_streams > 0) return members[0].nccl_streams;
  std::set<std::string> hosts;
  int most = kMostCommunicators;
  for (const Candidate& m : members) {
    if (!m.sockets || !hosts.insert(m.nccl_host).second) return 1;
    most = std::min(most, m.cores / 2);
  }
  return std::max(most, 1);
}

std::string with_nccl(const std::vector<Candidate>& members, int communicators) {
  std::string text = "NCCL " + version_text(members[0].nccl);
  if (communicators > 1) text += " (large ones over " + std::to_string(communicators) + " communicators)";
  return text;
}

const Candidate* first_sharer(const std::vector<Candidate>& members) {
  for (const Candidate& m : members)
    if (sharing(members, m) > 1) return &m;
  return nullptr;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

bool same_gpu(const Candidate& a, const Candidate& b) {
  return a.host == b.host && std::memcmp(a.gpu.bytes, b.gpu.bytes, sizeof a.gpu.bytes) == 0;
}

int sharing(const std::vector<Candidate>& members, const Candidate& one) {
  return static_cast<int>(
      std::count_if(members.begin(), members.end(), [&](const Candidate& m) { return same_gpu(m, one); }));
}

int waiting(const std::vector<Candidate>& members, const Candidate& one) {
  int ranks = sharing(members, one);
  bool all_here = ranks > 1 && ranks == static_cast<int>(members.size());
  return ranks + one.outsiders - (all_here ? 1 : 0);
}

bool parse_wanted(const std::string& text, Wanted* out) {
  for (Wanted w : {Wanted::kAuto, Wanted::kNccl, Wanted::kDirect, Wanted::kHost})
    if (lower(text) == lower(wanted_name(w))) {
      *out = w;
      return true;
    }
  return false;
}

const char* wanted_name(Wanted wanted) {
  switch (wanted) {
    case Wanted::kNccl: return "NCCL";
    case Wanted::kDirect: return "direct";
    case Wanted::kHost: return "host";
    default: return "auto";
  }
}

Choice choose(const std::vector<Candidate>& members, size_t direct_up_to) {
  Choice c;
  Wanted wanted = members[0].wanted;
  for (const Candidate& m : members)
    if (m.wanted != wanted) {
      c.error = std::string("HOROVOD_GPU_OPERATIONS is ") + wanted_name(wanted) + " on rank " +
                std::to_string(members[0].rank) + " but " + wanted_name(m.wanted) + " on rank " +
                std::to_string(m.rank) + "; set it to the same everywhere.";
      return c;
    }
  std::string no_map = no_direct(members);
  std::string no_library = no_nccl(members);
  const Candidate* shared = first_sharer(members);

  // Blocks that spin wait for blocks of the other ranks: all of them must run at a time, and what comes before them.
  std::string how;  // where they take turns, why
  c.blocks = kMostBlocks;
  for (const Candidate& m : members) {
    int ranks = sharing(members, m);
    // Without MPS a rank that spins has its GPU for itself.
    int most = m.mps ? most_waiting(m.capacity) / waiting(members, m) : m.capacity * 3 / 4;
    c.blocks = std::clamp(most, 1, c.blocks);
    if (ranks > 1 && !m.mps) how = " (ranks share a GPU without MPS and take turns: nvidia-cuda-mps-control -d)";
    else if (m.room < 1 && how.empty())
      how = " (other jobs fill the GPU of rank " + std::to_string(m.rank) + ": ranks take turns)";
  }
  for (const Candidate& m : members) c.blocks = std::min(c.blocks, std::max(m.room, 1));
  c.spins = how.empty();

  switch (wanted) {
    case Wanted::kHost: c.reason = "through host memory, as asked for"; break;
    case Wanted::kNccl:
      c.nccl = no_library.empty();
      c.nccl_streams = communicators(members);
      c.reason = with_nccl(members, c.nccl_streams) + ", as asked for";
      if (!c.nccl) c.error = "HOROVOD_GPU_OPERATIONS is NCCL, which cannot be had: " + no_library;
      break;
    case Wanted::kDirect:
      c.direct = no_map.empty();
      c.reason = "direct, as asked for" + how;
      if (!c.direct) c.error = "HOROVOD_GPU_OPERATIONS is direct, which cannot be had: " + no_map;
      break;
    default:
      c.direct = no_map.empty();
      c.nccl = no_library.empty() && !shared;
      c.nccl_streams = communicators(members);
      if (shared && no_library.empty()) no_library = "it refuses ranks that share a GPU";
      if (c.direct && c.nccl) {
        c.direct_up_to = direct_up_to;
        c.reason =
            "direct up to " + std::to_string(direct_up_to) + " bytes, " + with_nccl(members, c.nccl_streams) + " above";
      } else if (c.direct) {
        c.reason = "direct" + how + "; no NCCL: " + no_library;
      } else if (c.nccl) {
        c.reason = with_nccl(members, c.nccl_streams) + "; not direct: " + no_map;
      } else {
        c.reason = "through host memory; no NCCL: " + no_library + "; not direct: " + no_map;
      }
  }
  return c;
}

}  // namespace hvd::cuda
