// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/team.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "paths/cuda/alone.h"
#include "paths/cuda/nccl_network.h"
#include "util/bytes.h"
#include "util/cores.h"
#include "util/log.h"

namespace hvd::cuda {
namespace {

// Everybody's words, by member.
std::vector<std::string> gather(HostPath& host, const PlannedBatch& batch, const std::string& mine) {
  auto n = static_cast<size_t>(batch.layout->size());
  auto collect = [&](const void* data, const std::vector<size_t>& bytes, char* out) {
    Spans from;
    from.add(data, nullptr, bytes[static_cast<size_t>(batch.layout->my_index)]);
    std::vector<Spans> to(n);
    for (size_t i = 0; i < n; ++i) {
      to[i].add(nullptr, out, bytes[i]);
      out += bytes[i];
    }
    host.lend(batch).allgather(from, bytes, to);
  };
  std::vector<uint64_t> sizes(n);
  uint64_t size = mine.size();
  collect(&size, std::vector<size_t>(n, sizeof size), reinterpret_cast<char*>(sizes.data()));
  std::vector<size_t> bytes(sizes.begin(), sizes.end());
  size_t total = 0;
  for (size_t b : bytes) total += b;
  std::string all(total, '\0');
  collect(mine.data(), bytes, all.data());
  std::vector<std::string> words;
  size_t at = 0;
  for (size_t b : bytes) {
    words.push_back(all.substr(at, b));
    at += b;
  }
  return words;
}

// What a rank writes into the memory it shows before the others look at it.
constexpr size_t kProofBytes = 64;
std::string proof(uint64_t seq, int member) {
  std::string bytes;
  uint64_t x = seq * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(member) + 1;
  while (bytes.size() < kProofBytes) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  return bytes;
}

// The caller's, where it waits for all of the batch at once; else our own, beside which the caller's goes on.
Stream stream_of(const PlannedBatch& batch, Stream own) {
  for (const Tensor* tensor : batch.tensors)
    if (!tensor || !tensor->in_stream || tensor->stream != batch.tensors[0]->stream) return own;
  return static_cast<Stream>(batch.tensors[0]->stream);
}

// Ranks of the host that are no members.
int32_t outsiders(int host, const std::vector<int>& host_of_rank, const SetLayout& layout) {
  auto there = std::count(host_of_rank.begin(), host_of_rank.end(), host);
  auto members = std::count_if(layout.members.begin(), layout.members.end(),
                               [&](int rank) { return host_of_rank[static_cast<size_t>(rank)] == host; });
  return static_cast<int32_t>(there - members);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

struct Team::Hello {
  Candidate self;
  int32_t device = 0;
  IpcHandle memory{};

  std::string encode() const {
    Writer out;
    out.put(self.rank);
    out.put(self.host);
    out.put(self.wanted);
    out.put(self.gpu);
    out.put(static_cast<uint8_t>(self.mps));
    out.put(self.capacity);
    out.put(self.nccl);
    out.put_text(self.no_nccl);
    out.put(self.nccl_streams);
    out.put_text(self.nccl_host);
    out.put(static_cast<uint8_t>(self.sockets));
    out.put(self.cores);
    out.put_text(self.no_direct);
    out.put(device);
    out.put(memory);
    return out.take();
  }
  static Hello decode(const std::string& bytes) {
    Reader in(bytes);
    Hello h;
    h.self.rank = in.get<int32_t>();
    h.self.host = in.get<int32_t>();
    h.self.wanted = in.get<Wanted>();
    h.self.gpu = in.get<Uuid>();
    h.self.mps = in.get<uint8_t>() != 0;
    h.self.capacity = in.get<int32_t>();
    h.self.nccl = in.get<int32_t>();
    h.self.no_nccl = in.get_text();
    h.self.nccl_streams = in.get<int32_t>();
    h.self.nccl_host = in.get_text();
    h.self.sockets = in.get<uint8_t>() != 0;
    h.self.cores = in.get<int32_t>();
    h.self.no_direct = in.get_text();
    h.device = in.get<int32_t>();
    h.memory = in.get<IpcHandle>();
    in.expect_end();
    return h;
  }
};

struct Team::Answer {
  std::string no_direct;
  int32_t room = kMostBlocks;
  std::vector<NcclId> id;  // of the first member, if it has NCCL

  std::string encode() const {
    Writer out;
    out.put_text(no_direct);
    out.put(room);
    out.put_list(id);
    return out.take();
  }
  static Answer decode(const std::string& bytes) {
    Reader in(bytes);
    Answer a;
    a.no_direct = in.get_text();
    a.room = in.get<int32_t>();
    a.id = in.get_list<NcclId>();
    in.expect_end();
    return a;
  }
};

Team::Hello Team::introduce(const PlannedBatch& batch, const std::vector<int>& host_of_rank, const Settings& settings) {
  Hello hello;
  Candidate& self = hello.self;
  self.rank = batch.layout->members[static_cast<size_t>(me_)];
  self.host = host_of_rank[static_cast<size_t>(self.rank)];
  parse_wanted(settings.gpu_operations, &self.wanted);
  hello.device = tools_->device->number;
  self.gpu = tools_->device->uuid();
  self.mps = tools_->device->attribute(kMpsEnabled, 0) != 0;
  if (self.wanted == Wanted::kAuto || self.wanted == Wanted::kNccl) {
    nccl_library_ = load_nccl(settings.nccl_library, &self.no_nccl);
    if (nccl_library_) self.nccl = nccl_library_->version;
    NcclNetwork network = find_network(&std::getenv, "/sys/class/infiniband");
    self.nccl_streams = static_cast<int32_t>(settings.num_nccl_streams);
    self.sockets = network.sockets;
    self.nccl_host =
        std::to_string(self.host) + " " + network.host + (network.apart ? " " + std::to_string(self.rank) : "");
    self.cores = static_cast<int32_t>(usable_cores() / std::count(host_of_rank.begin(), host_of_rank.end(), self.host));
  }
  bool may_map = (self.wanted == Wanted::kAuto || self.wanted == Wanted::kDirect) && batch.layout->hosts() == 1 &&
                 n_ <= kMostPeers;
  if (!may_map) {
    self.no_direct = "not tried";
    return hello;
  }
  try {
    shown_ = std::make_unique<ShownMemory>(tools_->device);
    hello.memory = shown_->handle();
    self.capacity = Direct::capacity(*tools_);
    Pinned pinned(*tools_->device, kProofBytes);
    std::memcpy(pinned.data(), proof(batch.seq, me_).data(), kProofBytes);
    InContext in(*tools_->device);
    Stream stream = tools_->device->stream(0);
    HVD_CUDA(copy_async, shown_->address() + kSmallOffset, address_of(pinned.data()), kProofBytes, stream);
    HVD_CUDA(stream_synchronize, stream);
  } catch (const CudaError& e) {
    self.no_direct = e.what();
  }
  return hello;
}

std::string Team::map_peers(const std::vector<Hello>& hellos, uint64_t seq) {
  std::vector<IpcHandle> handles;
  for (const Hello& h : hellos) handles.push_back(h.memory);
  try {
    peers_ = std::make_unique<PeerMemory>(tools_->device, std::move(shown_), me_, handles);
    Pinned pinned(*tools_->device, kProofBytes);
    InContext in(*tools_->device);
    Stream stream = tools_->device->stream(0);
    for (int i = 0; i < n_; ++i) {
      HVD_CUDA(copy_async, address_of(pinned.data()), address_of(peers_->of(i)) + kSmallOffset, kProofBytes, stream);
      HVD_CUDA(stream_synchronize, stream);
      if (std::memcmp(pinned.data(), proof(seq, i).data(), kProofBytes) != 0)
        return "what rank " + std::to_string(hellos[static_cast<size_t>(i)].self.rank) +
               " wrote into its memory is not what is read there; is an IOMMU in the way?";
    }
  } catch (const CudaError& e) {
    return e.what();
  }
  return "";
}

Team::Team(std::shared_ptr<Tools> tools, HostPath& host, const PlannedBatch& batch,
           const std::vector<int>& host_of_rank, const Settings& settings)
    : tools_(std::move(tools)),
      host_(host),
      me_(batch.layout->my_index),
      n_(batch.layout->size()),
      process_set_(batch.process_set),
      space_(tools_->device) {
  if (n_ == 1) {
    devices_ = {tools_->device->number};
    alone_ = std::make_unique<Alone>(tools_->converter);
    choice_.reason = "alone";
    return;
  }
  std::vector<Hello> hellos;
  for (const std::string& words : gather(host_, batch, introduce(batch, host_of_rank, settings).encode()))
    hellos.push_back(Hello::decode(words));
  std::vector<Candidate> members;
  for (const Hello& h : hellos) {
    members.push_back(h.self);
    members.back().outsiders = outsiders(h.self.host, host_of_rank, *batch.layout);
    devices_.push_back(h.device);
  }
  auto up_to = static_cast<size_t>(settings.gpu_direct_bytes);
  choice_ = choose(members, up_to);
  if (choice_.error.empty()) {
    Answer mine;
    if (choice_.direct) mine.no_direct = map_peers(hellos, batch.seq);
    if (choice_.direct && choice_.spins) mine.room = claim_room(members);
    if (me_ == 0 && nccl_library_ && members[0].nccl) {
      mine.id.resize(1);
      NcclResult result = nccl_library_->get_unique_id(mine.id.data());
      if (result != kNcclSuccess) {
        const char* last = nccl_library_->last_error(nullptr);
        throw NcclError(describe_nccl(*nccl_library_, result, "ncclGetUniqueId", last ? last : ""));
      }
    }
    std::vector<Answer> answers;
    for (const std::string& words : gather(host_, batch, mine.encode())) answers.push_back(Answer::decode(words));
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].no_direct.empty()) members[i].no_direct = answers[i].no_direct;
      members[i].room = answers[i].room;
    }
    choice_ = choose(members, up_to);
    if (choice_.direct)
      direct_ = std::make_unique<Direct>(*tools_, std::move(peers_), me_, n_, choice_.spins, choice_.blocks);
    if (choice_.nccl)
      nccl_ = std::make_unique<NcclGroup>(*nccl_library_, tools_->device, tools_->converter, answers[0].id.at(0), me_,
                                          n_, choice_.nccl_streams, [this] { host_.check(); });
    if (choice_.through_host()) staged_ = std::make_unique<Staged>(tools_->device, host_, me_, n_);
  }
  peers_.reset();
  shown_.reset();
  if (me_ == 0)
    HVD_LOG(Info, "[" << members[0].rank << "]: GPU tensors of process set " << process_set_ << " (" << n_
                      << " ranks) go " << (choice_.error.empty() ? choice_.reason : "nowhere: " + choice_.error));
}

// One rank claims for all that share its GPU. Its groups run one after the other, so they use the same places.
int32_t Team::claim_room(const std::vector<Candidate>& members) {
  const Candidate& self = members[static_cast<size_t>(me_)];
  if (!self.mps) return kMostBlocks;  // it has the GPU for itself while it runs
  for (int i = 0; i < me_; ++i)
    if (same_gpu(members[static_cast<size_t>(i)], self)) return kMostBlocks;
  int ranks = waiting(members, self);
  return tools_->room.claim(ranks * choice_.blocks, most_waiting(self.capacity)) / ranks;
}

Group& Team::pick(const PlannedBatch& batch, size_t bytes) {
  if (alone_) return *alone_;
  if (choice_.goes_direct(bytes)) {
    ++direct_batches_;
    return *direct_;
  }
  if (choice_.nccl) {
    ++nccl_batches_;
    return *nccl_;
  }
  ++staged_batches_;
  staged_->enter(batch);
  return *staged_;
}

void Team::run(PlannedBatch& batch, size_t bytes) {
  Group& group = pick(batch, bytes);
  Stream own = tools_->order.own;
  Stream stream = group.any_stream() ? stream_of(batch, own) : own;
  std::optional<Marks> marks;
  if (batch.phases) marks = tools_->trace.of(batch, bytes, group.name());
  Verbs(*tools_, group, space_, stream, marks ? &*marks : nullptr).run(batch);
  if (marks) tools_->trace.add(std::move(*marks));
}

void Team::leave() {
  tools_->order.follow(tools_->order.own);
  last_ = tools_->device->record(tools_->order.own);
}

bool Team::left() {
  if (!last_->reached()) return false;
  if (direct_) direct_->rest();
  if (nccl_) nccl_->rest();
  return true;
}

// Groups wait for their own streams when they end.
Team::~Team() {
  try {
    tools_->order.follow(tools_->order.own);
  } catch (const CudaError&) {  // the process ends and the driver has gone
  }
}

void Team::abort() {
  tools_->stop.set();
  if (direct_) direct_->abort();
  if (nccl_) nccl_->abort();
}

std::string Team::report() const {
  std::ostringstream out;
  out << "{\"process_set\": " << process_set_ << ", \"ranks\": " << n_ << ", \"device\": " << tools_->device->number
      << ", \"gpu\": " << quoted(tools_->device->name()) << ", \"way\": " << quoted(choice_.reason)
      << ", \"spins\": " << (choice_.direct && choice_.spins ? "true" : "false") << ", \"blocks\": " << choice_.blocks
      << ", \"direct_batches\": " << direct_batches_ << ", \"nccl_batches\": " << nccl_batches_
      << ", \"host_batches\": " << staged_batches_ << "}";
  return out.str();
}

}  // namespace hvd::cuda
