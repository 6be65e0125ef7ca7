// SPDX-License-Identifier: Apache-2.0
#include "control/message.h"

#include "horovod/core.h"
#include "util/dtype.h"

namespace hvd {
namespace {

struct Frame {
  explicit Frame(MessageType type) {
    out.put(uint32_t{0});
    out.put(static_cast<uint8_t>(type));
  }
  std::string finish() {
    out.patch(0, static_cast<uint32_t>(out.size() - sizeof(uint32_t)));
    return out.take();
  }
  Writer out;
};

void put_description(Writer& out, const Description& d) {
  out.put_text(d.name);
  out.put(d.process_set);
  out.put(d.kind);
  out.put(d.dtype);
  out.put(d.reduce_op);
  out.put(d.root);
  out.put(d.device);
  out.put(d.wire);
  out.put(d.prescale);
  out.put(d.postscale);
  out.put_list(d.shape);
  out.put(d.group);
  out.put(d.group_size);
}

Description get_description(Reader& in) {
  Description d;
  d.name = in.get_text();
  d.process_set = in.get<int32_t>();
  d.kind = in.get<int32_t>();
  d.dtype = in.get<int32_t>();
  d.reduce_op = in.get<int32_t>();
  d.root = in.get<int32_t>();
  d.device = in.get<int32_t>();
  d.wire = in.get<int32_t>();
  d.prescale = in.get<double>();
  d.postscale = in.get<double>();
  d.shape = in.get_list<int64_t>();
  d.group = in.get<uint64_t>();
  d.group_size = in.get<int32_t>();
  return d;
}

void put_variant(Writer& out, const Variant& v) {
  put_description(out, v.description);
  out.put(static_cast<uint32_t>(v.shares.size()));
  for (const Share& s : v.shares) {
    out.put(s.rank);
    out.put(s.dim0);
    out.put_list(s.splits);
    out.put(s.device);
  }
}

Variant get_variant(Reader& in) {
  Variant v;
  v.description = get_description(in);
  uint32_t n = in.get_count(2 * sizeof(int32_t) + sizeof(int64_t) + sizeof(uint32_t));
  v.shares.resize(n);
  for (Share& s : v.shares) {
    s.rank = in.get<int32_t>();
    s.dim0 = in.get<int64_t>();
    s.splits = in.get_list<int64_t>();
    s.device = in.get<int32_t>();
  }
  return v;
}

void put_departure(Writer& out, const Departure& departure) {
  out.put(departure.rank);
  out.put_text(departure.reason);
}

Departure get_departure(Reader& in) {
  Departure departure;
  departure.rank = in.get<int32_t>();
  departure.reason = in.get_text();
  return departure;
}

}  // namespace

const char* kind_name(int kind) {
  switch (kind) {
    case HVD_ALLREDUCE: return "ALLREDUCE";
    case HVD_ALLGATHER: return "ALLGATHER";
    case HVD_BROADCAST: return "BROADCAST";
    case HVD_JOIN: return "JOIN";
    case HVD_ALLTOALL: return "ALLTOALL";
    case HVD_BARRIER: return "BARRIER";
    case HVD_REDUCESCATTER: return "REDUCESCATTER";
    case kAddProcessSet: return "ADD_PROCESS_SET";
    case kRemoveProcessSet: return "REMOVE_PROCESS_SET";
    default: return "UNKNOWN";
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

const char* Description::kind_text() const {
  return kind == HVD_ALLREDUCE && reduce_op == HVD_ADASUM ? "ADASUM" : kind_name(kind);
}

bool Description::rows_vary() const { return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL; }

bool Description::varies_by_rank() const { return rows_vary() || device >= 0; }

int64_t Description::elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int64_t payload_bytes(const Description& d, const std::vector<Share>& shares) {
  auto item = static_cast<int64_t>(item_size(d.dtype));
  if (!d.rows_vary()) return d.elements() * item;
  int64_t row = item;
  for (size_t i = 1; i < d.shape.size(); ++i) row *= d.shape[i];
  int64_t rows = 0;
  for (const Share& s : shares) rows += s.dim0;
  return rows * row;
}

uint64_t devices_key(const Description& d, const std::vector<Share>& shares) {
  if (d.device < 0) return 0;
  uint64_t key = 1;
  for (const Share& s : shares) {  // in any order
    uint64_t x = (static_cast<uint64_t>(s.rank) << 16 | static_cast<uint64_t>(s.device & 0xffff)) + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    key += (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  }
  return key ? key : 1;
}

std::string encode_ready_cached(const std::vector<uint32_t>& ids, const std::vector<int32_t>& last_ranks) {
  Frame f(MessageType::ReadyCached);
  f.out.put_list(ids);
  f.out.put_list(last_ranks);
  return f.finish();
}

std::string encode_ready_full(const std::vector<Variant>& variants, int32_t last_rank) {
  Frame f(MessageType::ReadyFull);
  f.out.put(static_cast<uint32_t>(variants.size()));
  for (const Variant& v : variants) put_variant(f.out, v);
  f.out.put(last_rank);
  return f.finish();
}

std::string encode_join(int32_t rank) {
  Frame f(MessageType::Join);
  f.out.put(rank);
  return f.finish();
}

std::string encode_shutdown(const Departure& departure) {
  Frame f(MessageType::Shutdown);
  put_departure(f.out, departure);
  return f.finish();
}

std::string encode_partial(const PartialReport& report) {
  Frame f(MessageType::Partial);
  f.out.put(report.process_set);
  f.out.put_text(report.name);
  f.out.put(report.age);
  f.out.put_list(report.ready);
  return f.finish();
}

std::string encode_need_full(uint32_t id) {
  Frame f(MessageType::NeedFull);
  f.out.put_list(std::vector<uint32_t>{id});
  return f.finish();
}

std::string encode_plan(const Plan& plan) {
  Frame f(MessageType::Plan);
  f.out.put(static_cast<uint8_t>(plan.shutdown));
  put_departure(f.out, plan.departure);
  f.out.put_list(plan.evicted);
  f.out.put(static_cast<uint32_t>(plan.batches.size()));
  for (const Batch& b : plan.batches) {
    f.out.put(b.seq);
    f.out.put(b.process_set);
    f.out.put(b.kind);
    f.out.put(b.last_rank);
    f.out.put(b.joined_last);
    f.out.put(b.new_process_set);
    f.out.put(b.error_code);
    f.out.put_text(b.error);
    f.out.put(static_cast<uint32_t>(b.tensors.size()));
    for (const PlannedTensor& t : b.tensors) {
      f.out.put(t.id);
      f.out.put(static_cast<uint8_t>(t.full));
      if (t.full) put_variant(f.out, t.value);
    }
  }
  return f.finish();
}

std::vector<uint32_t> decode_ids(Reader& body) {
  auto ids = body.get_list<uint32_t>();
  body.expect_end();
  return ids;
}

ReadyIds decode_ready_cached(Reader& body) {
  ReadyIds ready;
  ready.ids = body.get_list<uint32_t>();
  ready.last_ranks = body.get_list<int32_t>();
  body.expect_end();
  if (!ready.last_ranks.empty() && ready.last_ranks.size() != ready.ids.size())
    throw ParseError("a ready message with fewer ranks than tensors");
  return ready;
}

std::vector<Variant> decode_variants(Reader& body, int32_t* last_rank) {
  std::vector<Variant> variants(body.get_count(64));
  for (Variant& v : variants) v = get_variant(body);
  auto last = body.get<int32_t>();
  if (last_rank) *last_rank = last;
  body.expect_end();
  if (variants.empty()) throw ParseError("a ready message without a tensor");
  return variants;
}

int32_t decode_join(Reader& body) {
  auto rank = body.get<int32_t>();
  body.expect_end();
  return rank;
}

Departure decode_shutdown(Reader& body) {
  Departure departure = get_departure(body);
  body.expect_end();
  return departure;
}

PartialReport decode_partial(Reader& body) {
  PartialReport r;
  r.process_set = body.get<int32_t>();
  r.name = body.get_text();
  r.age = body.get<double>();
  r.ready = body.get_list<int32_t>();
  body.expect_end();
  return r;
}

Plan decode_plan(Reader& body) {
  Plan plan;
  plan.shutdown = body.get<uint8_t>() != 0;
  plan.departure = get_departure(body);
  plan.evicted = body.get_list<uint32_t>();
  plan.batches.resize(body.get_count(40));
  for (Batch& b : plan.batches) {
    b.seq = body.get<uint64_t>();
    b.process_set = body.get<int32_t>();
    b.kind = body.get<int32_t>();
    b.last_rank = body.get<int32_t>();
    b.joined_last = body.get<int32_t>();
    b.new_process_set = body.get<int32_t>();
    b.error_code = body.get<int32_t>();
    b.error = body.get_text();
    b.tensors.resize(body.get_count(5));
    for (PlannedTensor& t : b.tensors) {
      t.id = body.get<uint32_t>();
      t.full = body.get<uint8_t>() != 0;
      if (t.full) t.value = get_variant(body);
    }
  }
  body.expect_end();
  return plan;
}

void FrameParser::feed(const char* data, size_t n) {
  if (consumed_) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_.append(data, n);
}

bool FrameParser::next(MessageType* type, std::string_view* body) {
  std::string_view rest = std::string_view(buffer_).substr(consumed_);
  uint32_t length;
  if (rest.size() < sizeof length) return false;
  std::memcpy(&length, rest.data(), sizeof length);
  if (length < 1 || length > kMaxFrame) throw ParseError("frame of " + std::to_string(length) + " bytes");
  if (rest.size() - sizeof length < length) return false;
  *type = static_cast<MessageType>(static_cast<uint8_t>(rest[sizeof length]));
  *body = rest.substr(sizeof length + 1, length - 1);
  consumed_ += sizeof length + length;
  return true;
}

}  // namespace hvd
