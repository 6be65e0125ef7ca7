// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL: the same symbols, with ranks in one process or in several, that meet in a file in memory which
// the maker of the id holds. Work runs on the streams of the stand-in for the driver. It is as strict as NCCL is
// silent: ranks that call different collectives end the program.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paths/cuda/element.h"
#include "paths/cuda/nccl_abi.h"
#include "tests/standin/control.h"

using namespace hvd::cuda;

extern "C" Result cuLaunchHostFunc(Stream stream, void (*body)(void*), void* argument);
extern "C" Result cuDeviceGetUuid(Uuid* uuid, int device);

namespace {

constexpr int kMostRanks = 16;
constexpr size_t kSlot = 64 << 10;
constexpr size_t kRing = 16 << 10;
constexpr size_t kMostSplits = 8;

struct Ring {  // bytes from one rank to another
  std::atomic<uint64_t> written, read;
  char bytes[kRing];
};

struct What {  // a collective, for the check that all do the same
  int32_t kind;
  int32_t type;
  int32_t op;
  int32_t root;
  uint64_t count;
  bool operator==(const What& o) const {
    return kind == o.kind && type == o.type && op == o.op && root == o.root && count == o.count;
  }
};

struct Shared {
  std::atomic<int32_t> arrived;
  std::atomic<uint32_t> gone_in;  // barrier
  std::atomic<uint32_t> turn;
  What what[kMostRanks];
  struct Place {
    char host[64];
    Uuid gpu;
  } place[kMostRanks];
  char slot[kMostRanks][kSlot];
  Ring ring[kMostRanks][kMostRanks];
};

struct Id {  // the meaning of an NcclId
  int32_t process;
  int32_t descriptor;
};

struct Failure {
  std::mutex mutex;
  std::string call;
  int code = 0;
  std::string text;
};
Failure& failure() {
  static auto* one = [] {
    auto* f = new Failure;
    if (const char* said = std::getenv("STANDIN_NCCL_FAIL")) {
      std::string text = said;
      size_t a = text.find(':');
      size_t b = text.find(':', a + 1);
      f->call = text.substr(0, a);
      f->code = std::atoi(text.c_str() + a + 1);
      f->text = b == std::string::npos ? "" : text.substr(b + 1);
    }
    return f;
  }();
  return *one;
}

std::atomic<int> version{0};
std::atomic<bool> hang{false};
thread_local std::string last_error;

NcclResult enter(const char* call) {
  Failure& f = failure();
  std::lock_guard<std::mutex> lock(f.mutex);
  if (f.call != call || !f.code) return kNcclSuccess;
  last_error = f.text;
  return f.code;
}

}  // namespace

// Alive while somebody has work for it on a stream.
struct ncclComm {
  Shared* shared = nullptr;
  size_t splits = 0;  // so far
  int me = 0;
  int n = 0;
  int device = 0;
  std::atomic<bool> aborted{false};
  std::atomic<int> polls{0};  // how often it still says that it is busy
  bool connected = false;
  bool blocking = false;
  std::shared_ptr<ncclComm> child;  // being split off
  NcclComm* child_place = nullptr;
  std::vector<double> factors;  // of scaled sums, by operator - 5
  bool duplicate = false;
};

namespace {

using CommPtr = std::shared_ptr<ncclComm>;
std::mutex comms_mutex;
std::vector<CommPtr>& comms() {
  static auto* all = new std::vector<CommPtr>;
  return *all;
}
CommPtr held(NcclComm comm) {
  std::lock_guard<std::mutex> lock(comms_mutex);
  for (CommPtr& c : comms())
    if (c.get() == comm) return c;
  std::fprintf(stderr, "stand-in for NCCL: a communicator that is gone\n");
  std::abort();
}

struct Aborted {};

void turn(const ncclComm& comm) {
  if (comm.aborted) throw Aborted();
  usleep(10);
}

void barrier(ncclComm& comm) {
  uint32_t before = comm.shared->turn.load(std::memory_order_acquire);
  if (comm.shared->gone_in.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(comm.n)) {
    comm.shared->gone_in.store(0, std::memory_order_relaxed);
    comm.shared->turn.store(before + 1, std::memory_order_release);
    return;
  }
  while (comm.shared->turn.load(std::memory_order_acquire) == before) turn(comm);
}

size_t size_of(int type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8: return 1;
    case kNcclFloat16:
    case kNcclBfloat16: return 2;
    case kNcclInt32:
    case kNcclUint32:
    case kNcclFloat32: return 4;
    default: return 8;
  }
}

template <class T>
void add(T* sum, const T* x, size_t count, int op, double factor, bool first) {
  using Wide = typename Element<T>::Sum;
  for (size_t i = 0; i < count; ++i) {
    Wide a = widen(sum[i]);
    Wide b = widen(x[i]);
    if (op >= 5) b = static_cast<Wide>(b * static_cast<Wide>(factor));
    Wide r = first                ? b
             : op == kNcclMax     ? std::max(a, b)
             : op == kNcclMin     ? std::min(a, b)
             : op == kNcclProduct ? wrapped_product(a, b)
                                  : wrapped_sum(a, b);
    narrow(r, &sum[i]);
  }
}

void add_bytes(char* sum, const char* x, size_t bytes, int type, int op, double factor, bool first) {
  size_t n = bytes / size_of(type);
  auto with = [&](auto* kind) {
    using T = std::remove_pointer_t<decltype(kind)>;
    add(reinterpret_cast<T*>(sum), reinterpret_cast<const T*>(x), n, op, factor, first);
  };
  switch (type) {
    case kNcclInt8: return with(static_cast<int8_t*>(nullptr));
    case kNcclUint8: return with(static_cast<uint8_t*>(nullptr));
    case kNcclInt32: return with(static_cast<int32_t*>(nullptr));
    case kNcclUint32: return with(static_cast<uint32_t*>(nullptr));
    case kNcclInt64: return with(static_cast<int64_t*>(nullptr));
    case kNcclUint64: return with(static_cast<uint64_t*>(nullptr));
    case kNcclFloat16: return with(static_cast<f16*>(nullptr));
    case kNcclBfloat16: return with(static_cast<bf16*>(nullptr));
    case kNcclFloat32: return with(static_cast<float*>(nullptr));
    default: return with(static_cast<double*>(nullptr));
  }
}

enum Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };

struct Op {
  Kind kind;
  const char* in;
  char* out;
  size_t bytes;  // that one rank sends, but for ReduceScatter, where it is what one gets
  int type;
  int op;
  int root;  // or peer
};

// Everybody shows chunk after chunk; `take` sees each rank's.
void rounds(ncclComm& comm, const char* in, size_t mine, size_t longest,
            const std::function<void(size_t, int, const char*, size_t)>& take, const std::function<size_t(int)>& of) {
  for (size_t at = 0; at < longest; at += kSlot) {
    if (in && at < mine) std::memcpy(comm.shared->slot[comm.me], in + at, std::min(kSlot, mine - at));
    barrier(comm);
    for (int r = 0; r < comm.n; ++r)
      if (at < of(r)) take(at, r, comm.shared->slot[r], std::min(kSlot, of(r) - at));
    barrier(comm);
  }
}

void collective(ncclComm& comm, const Op& op) {
  comm.shared->what[comm.me] = {op.kind, op.type, op.op, op.root, op.bytes};
  barrier(comm);
  if (!(comm.shared->what[0] == comm.shared->what[comm.me])) {
    std::fprintf(stderr, "stand-in for NCCL: rank 0 does collective %d of %lu bytes, rank %d does %d of %lu\n",
                 comm.shared->what[0].kind, comm.shared->what[0].count, comm.me, op.kind, op.bytes);
    std::abort();
  }
  while (hang) turn(comm);
  static const char* const slow = std::getenv("STANDIN_NCCL_US");
  if (slow) usleep(static_cast<useconds_t>(std::atoi(slow)));
  double factor = op.op >= 5 ? comm.factors.at(static_cast<size_t>(op.op - 5)) : 1.0;
  auto n = static_cast<size_t>(comm.n);
  switch (op.kind) {
    case kAllReduce:
    case kReduce: {
      char* out = op.kind == kReduce && comm.me != op.root ? nullptr : op.out;
      rounds(
          comm, op.in, op.bytes, op.bytes,
          [&](size_t at, int r, const char* from, size_t bytes) {
            if (out) add_bytes(out + at, from, bytes, op.type, op.op, factor, r == 0);
          },
          [&](int) { return op.bytes; });
      break;
    }
    case kReduceScatter: {
      size_t all = op.bytes * n;
      size_t mine = op.bytes * static_cast<size_t>(comm.me);
      std::vector<char> sums(op.bytes);
      rounds(
          comm, op.in, all, all,
          [&](size_t at, int r, const char* from, size_t bytes) {
            size_t first = std::max(at, mine);
            size_t last = std::min(at + bytes, mine + op.bytes);
            if (first < last)
              add_bytes(sums.data() + (first - mine), from + (first - at), last - first, op.type, op.op, factor,
                        r == 0);
          },
          [&](int) { return all; });
      std::memcpy(op.out, sums.data(), op.bytes);
      break;
    }
    case kAllGather: {
      std::vector<char> mine(op.in, op.in + op.bytes);  // may be in place
      rounds(
          comm, mine.data(), op.bytes, op.bytes,
          [&](size_t at, int r, const char* from, size_t bytes) {
            std::memcpy(op.out + static_cast<size_t>(r) * op.bytes + at, from, bytes);
          },
          [&](int) { return op.bytes; });
      break;
    }
    case kBroadcast:
      rounds(
          comm, comm.me == op.root ? op.in : nullptr, op.bytes, op.bytes,
          [&](size_t at, int r, const char* from, size_t bytes) {
            if (r == op.root) std::memmove(op.out + at, from, bytes);
          },
          [&](int) { return op.bytes; });
      break;
    default: break;
  }
}

// Sends and receives of a group go on side by side.
void exchange(ncclComm& comm, const std::vector<Op>& ops) {
  std::vector<size_t> done(ops.size(), 0);
  for (bool all = false; !all;) {
    all = true;
    bool moved = false;
    for (size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (done[i] == op.bytes) continue;
      all = false;
      bool sends = op.kind == kSend;
      Ring& ring = sends ? comm.shared->ring[comm.me][op.root] : comm.shared->ring[op.root][comm.me];
      uint64_t written = ring.written.load(std::memory_order_acquire);
      uint64_t read = ring.read.load(std::memory_order_acquire);
      size_t room = sends ? kRing - (written - read) : written - read;
      size_t at = (sends ? written : read) % kRing;
      size_t count = std::min({room, op.bytes - done[i], kRing - at});
      if (!count) continue;
      if (sends) {
        std::memcpy(ring.bytes + at, op.in + done[i], count);
        ring.written.store(written + count, std::memory_order_release);
      } else {
        std::memcpy(op.out + done[i], ring.bytes + at, count);
        ring.read.store(read + count, std::memory_order_release);
      }
      done[i] += count;
      moved = true;
    }
    if (!all && !moved) turn(comm);
  }
}

// Kernels on each device now.
std::array<std::atomic<int>, 64> kernels{};

struct Work {
  CommPtr comm;
  std::vector<Op> ops;
  static void run(void* self) {
    std::unique_ptr<Work> work(static_cast<Work*>(self));
    std::atomic<int>& here = kernels.at(static_cast<size_t>(work->comm->device));
    ++here;
    try {
      std::vector<Op> pairs;
      for (const Op& op : work->ops) {
        if (op.kind == kSend || op.kind == kReceive) pairs.push_back(op);
        else collective(*work->comm, op);
      }
      exchange(*work->comm, pairs);
    } catch (const Aborted&) {  // leaves the memory as it is, as a kernel would
    }
    --here;
  }
};

struct Group {
  int depth = 0;
  CommPtr comm;
  Stream stream = nullptr;
  std::vector<Op> ops;
};
thread_local Group group;

NcclResult launch() {
  if (!group.comm) return kNcclSuccess;
  CommPtr comm = group.comm;
  auto* work = new Work{comm, std::move(group.ops)};
  cuLaunchHostFunc(group.stream, Work::run, work);
  group.comm = nullptr;
  group.ops.clear();
  if (comm->connected || comm->blocking) return kNcclSuccess;
  comm->connected = true;  // the first time takes a moment
  comm->polls = 3;
  return kNcclInProgress;
}

NcclResult put(NcclComm comm, Stream stream, const Op& op) {
  if (!group.comm) group.comm = held(comm);
  if (group.comm.get() != comm) return kNcclInvalidUsage;
  group.stream = stream;
  group.ops.push_back(op);
  return group.depth ? kNcclSuccess : launch();
}

}  // namespace

extern "C" {

void standin_nccl_fail(const char* call, int code, const char* text) {
  std::lock_guard<std::mutex> lock(failure().mutex);
  failure().call = call;
  failure().code = code;
  failure().text = text;
}
void standin_nccl_version(int v) { version = v; }
void standin_nccl_hang(int h) { hang = h != 0; }

NcclResult ncclGetVersion(int* v) {
  const char* said = std::getenv("STANDIN_NCCL_VERSION");
  *v = version ? version.load() : said ? std::atoi(said) : 22809;
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case kNcclSuccess: return "no error";
    case kNcclUnhandledCuda: return "unhandled cuda error";
    case kNcclSystem: return "unhandled system error";
    case kNcclInvalidUsage: return "invalid usage";
    case kNcclRemote: return "remote process exited or there was a network error";
    default: return "internal error";
  }
}
const char* ncclGetLastError(NcclComm) { return last_error.c_str(); }

NcclResult ncclGetUniqueId(NcclId* id) {
  if (NcclResult r = enter("ncclGetUniqueId")) return r;
  int fd = memfd_create("standin-nccl", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(Shared) * (1 + kMostSplits)) != 0) return kNcclSystem;
  Id meaning{getpid(), fd};
  *id = {};
  std::memcpy(id->bytes, &meaning, sizeof meaning);
  return kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm* comm, int n, NcclId id, int rank, NcclConfig* config) {
  if (NcclResult r = enter("ncclCommInitRankConfig")) return r;
  if (!config || config->size != sizeof(NcclConfig) || config->magic != 0xcafebeef || config->blocking != 0)
    return kNcclInvalidArgument;
  Id meaning{};
  std::memcpy(&meaning, id.bytes, sizeof meaning);
  std::string path = "/proc/" + std::to_string(meaning.process) + "/fd/" + std::to_string(meaning.descriptor);
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kNcclSystem;
  void* memory = mmap(nullptr, sizeof(Shared) * (1 + kMostSplits), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return kNcclSystem;
  auto made = std::make_shared<ncclComm>();
  made->shared = static_cast<Shared*>(memory);
  made->me = rank;
  made->n = n;
  made->device = standin_current_device();
  Shared::Place& place = made->shared->place[rank];
  const char* host = std::getenv("NCCL_HOSTID");
  std::snprintf(place.host, sizeof place.host, "%s", host ? host : "here");
  cuDeviceGetUuid(&place.gpu, standin_current_device());
  made->polls = 3;
  made->shared->arrived.fetch_add(1, std::memory_order_acq_rel);
  {
    std::lock_guard<std::mutex> lock(comms_mutex);
    comms().push_back(made);
  }
  *comm = made.get();
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* state) {
  CommPtr c = held(comm);
  if (NcclResult r = enter("ncclCommGetAsyncError")) {
    *state = r;
    return kNcclSuccess;
  }
  *state = kNcclInProgress;
  if (c->shared->arrived.load(std::memory_order_acquire) < c->n) return kNcclSuccess;
  for (int a = 0; a < c->n; ++a)
    for (int b = 0; b < a; ++b) {
      const Shared::Place& x = c->shared->place[a];
      const Shared::Place& y = c->shared->place[b];
      if (std::strcmp(x.host, y.host) == 0 && std::memcmp(&x.gpu, &y.gpu, sizeof x.gpu) == 0) {
        last_error = "Duplicate GPU detected : rank " + std::to_string(b) + " and rank " + std::to_string(a) +
                     " both on CUDA device " + std::to_string(x.gpu.bytes[0] - 1);
        *state = kNcclInvalidUsage;
        return kNcclSuccess;
      }
    }
  if (c->polls.fetch_sub(1) > 0) return kNcclSuccess;
  if (c->child) *c->child_place = c->child.get();
  c->child = nullptr;
  *state = kNcclSuccess;
  return kNcclSuccess;
}

// All in one color, which is all that is needed. Each has memory of its own, behind that of the parent.
NcclResult ncclCommSplit(NcclComm parent, int, int key, NcclComm* child, NcclConfig* config) {
  if (NcclResult r = enter("ncclCommSplit")) return r;
  CommPtr c = held(parent);
  if (!config || config->blocking != 1 || key != c->me || c->splits == kMostSplits) return kNcclInvalidArgument;
  c->child = std::make_shared<ncclComm>();
  c->child->shared = c->shared + ++c->splits;
  c->child->shared->place[c->me] = c->shared->place[c->me];
  c->child->shared->arrived.fetch_add(1, std::memory_order_acq_rel);
  c->child->me = c->me;
  c->child->n = c->n;
  c->child->device = c->device;
  c->child->blocking = true;
  c->child_place = child;
  *child = nullptr;
  c->polls = 3;
  std::lock_guard<std::mutex> lock(comms_mutex);
  comms().push_back(c->child);
  return kNcclInProgress;
}

NcclResult ncclCommFinalize(NcclComm comm) {
  held(comm);
  return enter("ncclCommFinalize");
}

// Gives its device memory back, for which all kernels on the device must have ended, of other communicators too.
NcclResult ncclCommAbort(NcclComm comm) {
  CommPtr gone = held(comm);
  gone->aborted = true;
  while (kernels.at(static_cast<size_t>(gone->device)) > 0) usleep(10);
  std::lock_guard<std::mutex> lock(comms_mutex);
  comms().erase(std::find(comms().begin(), comms().end(), gone));
  return kNcclSuccess;
}
NcclResult ncclCommDestroy(NcclComm comm) {
  CommPtr gone = held(comm);
  std::lock_guard<std::mutex> lock(comms_mutex);
  comms().erase(std::find(comms().begin(), comms().end(), gone));
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  ++group.depth;
  return kNcclSuccess;
}
NcclResult ncclGroupEnd() {
  if (group.depth <= 0) return kNcclInvalidUsage;
  if (--group.depth > 0) return kNcclSuccess;
  if (NcclResult r = enter("ncclGroupEnd")) {
    group.comm = nullptr;
    group.ops.clear();
    return r;
  }
  return launch();
}

NcclResult ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, NcclComm comm) {
  if (residence != kNcclScalarOnHost) return kNcclInvalidArgument;
  CommPtr c = held(comm);
  f16 half{};
  bf16 brain{};
  float single = 0;
  double factor = 0;
  switch (type) {
    case kNcclFloat16:
      std::memcpy(&half, scalar, sizeof half);
      factor = widen(half);
      break;
    case kNcclBfloat16:
      std::memcpy(&brain, scalar, sizeof brain);
      factor = widen(brain);
      break;
    case kNcclFloat32:
      std::memcpy(&single, scalar, sizeof single);
      factor = single;
      break;
    case kNcclFloat64: std::memcpy(&factor, scalar, sizeof factor); break;
    default: return kNcclInvalidArgument;
  }
  *op = 5 + static_cast<int>(c->factors.size());
  c->factors.push_back(factor);
  return kNcclSuccess;
}

NcclResult ncclAllReduce(const void* in, void* out, size_t count, int type, int op, NcclComm comm, Stream stream) {
  if (NcclResult r = enter("ncclAllReduce")) return r;
  return put(comm, stream,
             {kAllReduce, static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type), type, op, 0});
}
NcclResult ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, NcclComm comm,
                      Stream stream) {
  return put(comm, stream,
             {kReduce, static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type), type, op, root});
}
NcclResult ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, NcclComm comm, Stream stream) {
  return put(
      comm, stream,
      {kReduceScatter, static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type), type, op, 0});
}
NcclResult ncclAllGather(const void* in, void* out, size_t count, int type, NcclComm comm, Stream stream) {
  return put(comm, stream,
             {kAllGather, static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type), type, 0, 0});
}
NcclResult ncclBroadcast(const void* in, void* out, size_t count, int type, int root, NcclComm comm, Stream stream) {
  return put(comm, stream,
             {kBroadcast, static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type), type, 0, root});
}
NcclResult ncclSend(const void* in, size_t count, int type, int peer, NcclComm comm, Stream stream) {
  return put(comm, stream, {kSend, static_cast<const char*>(in), nullptr, count * size_of(type), type, 0, peer});
}
NcclResult ncclRecv(void* out, size_t count, int type, int peer, NcclComm comm, Stream stream) {
  return put(comm, stream, {kReceive, nullptr, static_cast<char*>(out), count * size_of(type), type, 0, peer});
}

}  // extern "C"
