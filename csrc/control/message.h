// SPDX-License-Identifier: Apache-2.0
// What travels on the control plane. Up: "this tensor is ready here". Down: the plan.
//
//   frame = u32 length of the rest, u8 type, body
//
// A tensor is described in full once and by a cached id after that. The part all ranks must agree on
// (Description) is kept apart from the part that may differ by rank (Share).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "util/bytes.h"

namespace hvd {

// Control-plane kinds beyond the public hvd_kind values.
enum InternalKind { kAddProcessSet = 100, kRemoveProcessSet = 101 };

const char* kind_name(int kind);  // "ALLREDUCE"; Adasum has its own, see Description::kind_text
std::string shape_text(const std::vector<int64_t>& shape);

// No process can address more (128 TiB). Requests beyond it are refused, so sums over ranks do not overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 47;

struct Description {
  std::string name;
  int32_t process_set = 0;
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t reduce_op = 0;
  int32_t root = -1;
  int32_t device = -1;  // the kind of memory: -1 host, 0 GPU; which GPU it is, each rank's Share says
  int32_t wire = 0;     // hvd_dtype the elements travel in; 0: their own
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<int64_t> shape;  // allgather, alltoall: shape[0] is 0 here, each rank's is in its Share
  uint64_t group = 0;          // 0: not grouped; else the same on all ranks for the same list of names
  int32_t group_size = 0;

  bool operator==(const Description&) const = default;
  const char* kind_text() const;
  bool rows_vary() const;       // each rank has its own number of rows
  bool varies_by_rank() const;  // has Shares that matter
  int64_t elements() const;
};

struct Share {
  int32_t rank = 0;
  int64_t dim0 = 0;             // allgather, alltoall
  std::vector<int64_t> splits;  // alltoall, never empty there
  int32_t device = -1;          // which GPU of its host, as the rank's own process counts them

  bool operator==(const Share&) const = default;
};

// Bytes of a tensor; of all members' together where they vary.
int64_t payload_bytes(const Description& description, const std::vector<Share>& shares);

// The same for tensors whose ranks all use the same GPUs; 0 for host memory. Such tensors may travel together.
uint64_t devices_key(const Description& description, const std::vector<Share>& shares);

// One description and the ranks that sent it. More than one variant for a name is a mismatch.
struct Variant {
  Description description;
  std::vector<Share> shares;
};

enum class MessageType : uint8_t {
  // up
  ReadyCached = 1,  // u32 ids, i32 ranks that were last
  ReadyFull = 2,    // variants of one tensor, i32 rank that was last
  Join = 3,         // i32 rank
  Shutdown = 4,     // i32 rank, text: why it leaves
  Partial = 5,      // stall watch: a tensor some ranks of this subtree wait for
  // down
  Plan = 16,
  NeedFull = 17,  // u32 id that was evicted while in flight
};

struct PartialReport {
  int32_t process_set = 0;
  std::string name;
  double age = 0;              // seconds since the first of them did
  std::vector<int32_t> ready;  // ranks of the subtree that have submitted it
};

// A rank that leaves the job in good order.
struct Departure {
  int32_t rank = -1;
  std::string reason;  // "": nothing went wrong
};

struct PlannedTensor {
  uint32_t id = 0;    // cached id, 0 = not cached
  bool full = false;  // description and shares follow
  Variant value;
};

// Cached ids that are ready, and for each the rank that was ready last; without the ranks: whoever sent it was.
struct ReadyIds {
  std::vector<uint32_t> ids;
  std::vector<int32_t> last_ranks;  // [ids] or none
};

// Tensors executed together. Every rank of the set executes batches in the order of seq.
struct Batch {
  uint64_t seq = 0;
  int32_t process_set = 0;
  int32_t kind = 0;
  int32_t last_rank = -1;       // the others waited for it to submit these; -1: unknown
  int32_t joined_last = -1;     // JOIN
  int32_t new_process_set = 0;  // ADD
  std::string error;            // non-empty: fail these tensors with it
  int32_t error_code = 0;
  std::vector<PlannedTensor> tensors;
};

struct Plan {
  bool shutdown = false;
  Departure departure;  // who asked for the shutdown
  std::vector<uint32_t> evicted;
  std::vector<Batch> batches;
};

std::string encode_ready_cached(const std::vector<uint32_t>& ids, const std::vector<int32_t>& last_ranks = {});
std::string encode_ready_full(const std::vector<Variant>& variants, int32_t last_rank = -1);
std::string encode_join(int32_t rank);
std::string encode_shutdown(const Departure& departure);
std::string encode_partial(const PartialReport& report);
std::string encode_plan(const Plan& plan);
std::string encode_need_full(uint32_t id);

std::vector<uint32_t> decode_ids(Reader& body);
ReadyIds decode_ready_cached(Reader& body);
// last_rank may be null.
std::vector<Variant> decode_variants(Reader& body, int32_t* last_rank = nullptr);
int32_t decode_join(Reader& body);
Departure decode_shutdown(Reader& body);
PartialReport decode_partial(Reader& body);
Plan decode_plan(Reader& body);

// Cuts a byte stream into frames.
class FrameParser {
 public:
  void feed(const char* data, size_t n);
  // True with the next whole frame in *type and *body (valid until the next feed).
  bool next(MessageType* type, std::string_view* body);
  // A frame longer than this is a broken or hostile peer.
  static constexpr uint32_t kMaxFrame = 1u << 30;

 private:
  std::string buffer_;
  size_t consumed_ = 0;  // frames before this offset were handed out
};

}  // namespace hvd
