// SPDX-License-Identifier: Apache-2.0
#include "watch/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "util/clock.h"
#include "util/dtype.h"
#include "util/json.h"
#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

constexpr useconds_t kFlushEvery = 20000;
constexpr size_t kMaxTracks = 1 << 14;    // descriptions remembered by address
constexpr int64_t kRankStride = 1000000;  // between the ranks' "process" ids, so that files can be put together
constexpr int kOffsetWidth = 20;

std::string padded(int64_t number) {
  std::string text = std::to_string(number);
  return std::string(kOffsetWidth - std::min<size_t>(kOffsetWidth, text.size()), ' ') + text;
}

}  // namespace

std::string timeline_path(const std::string& path, int rank) {
  if (rank == 0) return path;
  size_t dot = path.rfind('.');
  size_t slash = path.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = path.size();
  return path.substr(0, dot) + ".rank" + std::to_string(rank) + path.substr(dot);
}

// ------------------------------------------------------------------------------------------ recording --

void Timeline::push(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.size() < kMaxPending) pending_.push_back(std::move(event));
  else ++dropped_;
}

void Timeline::negotiate_begin(const What& what) {
  if (!active()) return;
  push({Type::NegotiateBegin, now_s(), what});
}

void Timeline::ready(const What& what, int rank) {
  if (!active()) return;
  Event event(Type::Ready, now_s(), what);
  event.rank = rank;
  push(std::move(event));
}

void Timeline::negotiate_end(const What& what, int last_rank) {
  if (!active()) return;
  Event event(Type::NegotiateEnd, now_s(), what);
  event.rank = last_rank;
  push(std::move(event));
}

void Timeline::cycle() {
  if (!active() || !mark_cycles_) return;
  push({Type::Cycle, now_s()});
}

void Timeline::begin(const What& what, const Life& life) {
  if (!active()) return;
  Event event(Type::Begin, life.started, what);
  event.life = life;
  push(std::move(event));
}

void Timeline::span(const What& what, const char* phase, double from, double to) {
  if (!active()) return;
  Event event(Type::Span, from, what);
  event.to = to;
  event.phase = phase;
  push(std::move(event));
}

void Timeline::end(const What& what, const std::vector<int64_t>& output_shape) {
  if (!active()) return;
  Event event(Type::End, now_s(), what);
  event.dims = static_cast<int8_t>(std::min(output_shape.size(), event.shape.size()));
  std::copy_n(output_shape.begin(), event.dims, event.shape.begin());
  push(std::move(event));
}

void Timeline::copied(const std::string& name, const char* phase, double from, double to) {
  if (!active()) return;
  Event event(Type::Copy, from);
  event.to = to;
  event.phase = phase;
  event.text = name;
  push(std::move(event));
}

void Timeline::step(int64_t number, double at, bool inferred) {
  if (!active()) return;
  Event event(Type::Step, at);
  event.number = number;
  event.inferred = inferred;
  push(std::move(event));
}

void Timeline::mark(const std::string& text) {
  if (!active()) return;
  Event event(Type::Mark, now_s());
  event.text = text;
  push(std::move(event));
}

// -------------------------------------------------------------------------------------- start and stop --

bool Timeline::start(const std::string& path, bool mark_cycles, int64_t limit) {
  std::lock_guard<std::mutex> life(life_mutex_);
  if (active_ && path == path_) return true;
  stop_locked();
  names_.clear();
  next_id_ = 1;
  tracks_.clear();
  negotiating_.clear();
  start_ = now_s();
  start_epoch_us_ = static_cast<int64_t>(epoch_s() * 1e6);
  std::string problem;
  if (!file_.open(path, head(), limit, &problem)) {
    HVD_LOG(Error,
            "Error opening the Horovod Timeline file " << path << ", will not write a timeline. (" << problem << ")");
    return false;
  }
  path_ = path;
  mark_cycles_ = mark_cycles;
  active_ = true;
  thread_ = start_thread("hvd-timeline", [this] { loop(); });
  return true;
}

void Timeline::stop() {
  std::lock_guard<std::mutex> life(life_mutex_);
  stop_locked();
}

void Timeline::stop_locked() {
  active_ = false;
  if (thread_.joinable()) thread_.join();
  flush(true);
  file_.close();
  std::lock_guard<std::mutex> lock(mutex_);
  pending_.clear();
}

// ------------------------------------------------------------------------------------------- the writer --

void Timeline::loop() {
  while (active_) {
    usleep(kFlushEvery);
    flush(false);
  }
}

void Timeline::flush(bool last) {
  int64_t dropped = 0;
  taken_.clear();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    taken_.swap(pending_);
    dropped = std::exchange(dropped_, 0);
  }
  if (!file_.is_open()) return;
  out_.clear();
  for (const Event& event : taken_) format(event);
  if (works_)
    for (const DeviceWork& work : works_(last)) format(work);
  if (dropped) {
    open_event('i', "DROPPED", now_s());
    add(", \"pid\": 0, \"s\": \"g\", \"args\": {\"events\": ");
    add(dropped);
    add("}}");
  }
  if (int64_t offset = offset_us_; offset != offset_written_) {
    file_.patch(offset_at_, padded(offset));
    offset_written_ = offset;
  }
  if (out_.empty()) return;
  if (file_.append(out_) && (!file_.is_full() || shorten())) return;
  HVD_LOG(Error, "The Horovod Timeline file " << file_.path() << " could not be continued (" << std::strerror(errno)
                                              << "): it ends here, complete up to this point.");
  active_ = false;
  file_.close();
}

std::string Timeline::introduction(const std::string& name, int64_t id) const {
  std::string pid = std::to_string(id);
  std::string text = ",\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": " + pid +
                     ", \"args\": {\"name\": " + json_quoted(name) +
                     "}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": " + pid +
                     ", \"args\": {\"sort_index\": " + pid + "}}";
  if (identity_.rank)
    text += ",\n{\"name\": \"process_labels\", \"ph\": \"M\", \"pid\": " + pid + ", \"args\": {\"labels\": \"rank " +
            std::to_string(identity_.rank) + "\"}}";
  return text;
}

// Who this is, and the tensors seen so far.
std::string Timeline::head() {
  const std::string start = std::to_string(start_epoch_us_);
  std::string text =
      "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"start_time_since_epoch_in_micros\":" +
      start +
      "}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"sort_index\": 0}},\n"
      "{\"name\": \"horovod\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"rank\": " +
      std::to_string(identity_.rank) + ", \"size\": " + std::to_string(identity_.size) +
      ", \"host\": " + json_quoted(identity_.host) + ", \"pid\": " + std::to_string(getpid()) +
      ", \"start_time_since_epoch_in_micros\": " + start + ", \"version\": 2, \"clock_offset_us\": ";
  offset_at_ = text.size();
  offset_written_ = offset_us_;
  text += padded(offset_written_) + "}}";
  for (auto& [name, known] : names_) text += introduction(name, known.id);
  return text;
}

// Names that were not used of late go: where every tensor has another name they would outgrow the limit.
bool Timeline::shorten() {
  tracks_.clear();
  std::erase_if(names_, [&](const auto& entry) { return entry.second.half + 1 < half_; });
  ++half_;
  return file_.shorten(head());
}

Timeline::Name& Timeline::row(const std::string& name) {
  auto [found, added] = names_.try_emplace(name, Name{0, half_});
  if (added) {
    found->second.id = identity_.rank * kRankStride + next_id_++;
    add(introduction(name, found->second.id));
  }
  found->second.half = half_;
  return found->second;
}

const Timeline::Track& Timeline::track(const What& what) {
  auto found = tracks_.find(what.get());
  if (found == tracks_.end()) {
    if (tracks_.size() >= kMaxTracks) tracks_.clear();
    Name& name = row(what->name);
    found = tracks_.try_emplace(what.get()).first;
    found->second.name = &name;
    found->second.what = what;
    Track& fresh = found->second;
    fresh.pid = ", \"pid\": " + std::to_string(name.id) + ", \"cat\": \"horovod\"";
    fresh.about =
        fresh.pid + ", \"args\": {\"tensor\": " + json_quoted(what->name) + ", \"kind\": \"" + what->kind_text() + "\"";
    fresh.negotiate = std::string("NEGOTIATE_") + what->kind_text();
  }
  found->second.name->half = half_;
  return found->second;
}

void Timeline::add(int64_t number) {
  char digits[24];
  auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out_.append(digits, end);
}

void Timeline::add_time(double at) { add(static_cast<int64_t>((at - start_) * 1e6)); }

void Timeline::open_event(char type, const char* name, double at) {
  add(",\n{\"ph\": \"");
  out_ += type;
  add("\", \"name\": \"");
  add(name);
  add("\", \"ts\": ");
  add_time(at);
}

void Timeline::add_about(const Track& track, const Life& life) {
  add(track.about);
  add(", \"bytes\": ");
  add(life.bytes);
  add(", \"seq\": ");
  add(static_cast<int64_t>(life.seq));
  add(", \"last_rank\": ");
  add(life.last_rank);
  add(", \"waited_us\": ");
  bool waited = life.announced > 0 && life.last_rank >= 0 && life.last_rank != identity_.rank;
  add(waited ? static_cast<int64_t>((life.started - life.announced) * 1e6) : 0);
  add("}}");
}

void Timeline::complete(const Track& track, const char* name, double from, double to, const Life* life) {
  open_event('X', name, from);
  add(", \"dur\": ");
  add(static_cast<int64_t>((to - from) * 1e6));
  add(life ? track.about : track.pid);  // bytes are what a timeline costs: its "process" says which tensor it is
  if (life) {
    add(", \"seq\": ");
    add(static_cast<int64_t>(life->seq));
    add(", \"last_rank\": ");
    add(life->last_rank);
    add("}");
  }
  add("}");
}

// A span for the batch, and one for each part inside of it.
void Timeline::format(const DeviceWork& work) {
  if (work.from < start_) return;  // of a timeline before this one
  Name& name = row("GPU " + std::to_string(work.device));
  auto span = [&](const std::string& what, double from, double to) {
    add(",\n{\"ph\": \"X\", \"name\": ");
    add(what);
    add(", \"ts\": ");
    add_time(from);
    add(", \"dur\": ");
    add(static_cast<int64_t>((to - start_) * 1e6) - static_cast<int64_t>((from - start_) * 1e6));
    add(", \"cat\": \"horovod_gpu\", \"pid\": ");
    add(name.id);
  };
  std::string what = work.tensor;
  if (work.tensors > 1) what += " and " + std::to_string(work.tensors - 1) + " more";
  span(json_quoted(what), work.from, work.until());
  add(", \"args\": {\"tensor\": ");
  add(json_quoted(work.tensor));
  add(", \"kind\": \"");
  add(work.kind);
  add("\", \"way\": \"");
  add(work.way);
  add("\", \"tensors\": ");
  add(static_cast<int64_t>(work.tensors));
  add(", \"bytes\": ");
  add(work.bytes);
  add(", \"seq\": ");
  add(static_cast<int64_t>(work.seq));
  add(", \"input_us\": ");  // how long its input lay there before
  add(static_cast<int64_t>((work.from - work.ready) * 1e6));
  add("}}");
  double from = work.from;
  for (const DeviceWork::Part& part : work.parts) {
    span(std::string("\"") + part.name + "\"", from, part.until);
    add("}");
    from = part.until;
  }
}

void Timeline::format(const Event& event) {
  switch (event.type) {
    case Type::NegotiateBegin: {
      const Track& t = track(event.what);
      if (!negotiating_.insert(event.what->name).second) return;
      open_event('B', t.negotiate.c_str(), event.at);
      add(t.about);
      add("}}");
      break;
    }
    case Type::Ready: {
      const Track& t = track(event.what);
      open_event('X', std::to_string(event.rank).c_str(), event.at);
      add(", \"pid\": ");
      add(t.name->id);
      add(", \"dur\": 0}");
      break;
    }
    case Type::NegotiateEnd: {
      const Track& t = track(event.what);
      if (!negotiating_.erase(event.what->name)) return;
      add(",\n{\"ph\": \"E\", \"ts\": ");
      add_time(event.at);
      add(", \"pid\": ");
      add(t.name->id);
      add(", \"args\": {\"last_rank\": ");
      add(event.rank);
      add("}}");
      break;
    }
    case Type::Cycle:
      open_event('i', "CYCLE_START", event.at);
      add(", \"s\": \"g\"}");
      break;
    case Type::Begin: {
      const Track& t = track(event.what);
      const Life& life = event.life;
      if (life.queued > 0 && life.announced > life.queued) complete(t, "QUEUED", life.queued, life.announced, nullptr);
      // The coordinator shows when the first rank was ready, and each of the others.
      if (identity_.rank && life.announced > 0) complete(t, t.negotiate.c_str(), life.announced, life.started, &life);
      open_event('B', event.what->kind_text(), event.at);
      add_about(t, life);
      break;
    }
    case Type::Span: complete(track(event.what), event.phase, event.at, event.to, nullptr); break;
    case Type::End: {
      const Track& t = track(event.what);
      add(",\n{\"ph\": \"E\", \"ts\": ");
      add_time(event.at);
      add(", \"pid\": ");
      add(t.name->id);
      add(", \"args\": {\"dtype\": \"");
      add(dtype_name(event.what->dtype));
      add("\", \"shape\": \"[");
      for (int i = 0; i < event.dims; ++i) {
        if (i) add(", ");
        add(event.shape[static_cast<size_t>(i)]);
      }
      add("]\"}}");
      break;
    }
    case Type::Copy: {
      int64_t id = row(event.text).id;
      open_event('X', event.phase, event.at);
      add(", \"dur\": ");
      add(static_cast<int64_t>((event.to - event.at) * 1e6));
      add(", \"pid\": ");
      add(id);
      add(", \"cat\": \"horovod\"}");
      break;
    }
    case Type::Step:
      open_event('i', "STEP", std::max(event.at, start_));
      add(", \"pid\": 0, \"s\": \"p\", \"args\": {\"n\": ");
      add(event.number);
      add(event.inferred ? ", \"inferred\": true}}" : "}}");
      break;
    case Type::Mark:
      open_event('i', "MARK", event.at);
      add(", \"pid\": 0, \"s\": \"p\", \"args\": {\"text\": ");
      add(json_quoted(event.text));
      add("}}");
      break;
  }
}

}  // namespace hvd
