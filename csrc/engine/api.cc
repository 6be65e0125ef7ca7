// SPDX-License-Identifier: Apache-2.0
// The C header over the one engine of this process.
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine.h"
#include "horovod/core.h"
#include "host/segment.h"
#include "util/log.h"
#include "util/shared_slot.h"

namespace {

using hvd::Engine;
using hvd::Refused;

constexpr char kForkedText[] =
    "This process was forked from one that had called hvd.init(); the engine stays with the parent. Call Horovod only "
    "in the parent, or start the child with the spawn method and let it call hvd.init() itself.";

std::mutex life_mutex;  // start and stop, one at a time
hvd::SharedSlot<Engine> engine;
hvd::Settings settings;
std::atomic<bool> forked{false};
std::atomic<hvd_where_fn> where_callback{nullptr};
thread_local std::string last_error;

int32_t fail(int code, const std::string& text) {
  last_error = text;
  return code;
}

std::shared_ptr<Engine> running() {
  auto e = engine.load();
  if (!e) throw Refused(HVD_PRECONDITION, forked ? kForkedText : hvd::kNotInitialisedText);
  return e;
}

// Runs a body that may refuse, and turns that into a status and its text.
template <typename Result, typename F>
Result guarded(F body) {
  try {
    return body();
  } catch (const Refused& e) {
    return static_cast<Result>(fail(e.code, e.what()));
  } catch (const std::exception& e) {
    return static_cast<Result>(fail(HVD_UNKNOWN, e.what()));
  }
}

// The child keeps no descriptor, or the peers would not see the parent's death. The engine object is left alone: its
// threads and locks exist only in the parent.
void after_fork_in_child() {
  auto* inherited = new std::shared_ptr<Engine>(engine.unlocked());
  if (!*inherited) return;
  for (int fd : (*inherited)->descriptors()) close(fd);
  new (&engine) hvd::SharedSlot<Engine>();
  new (&life_mutex) std::mutex();
  forked = true;
}

template <typename F>
int32_t query(F value) {
  auto e = engine.load();
  return e ? value(*e) : -1;
}

}  // namespace

extern "C" {

int32_t hvd_api_version(void) { return HVD_API_VERSION; }

int32_t hvd_configure(const char* name, const char* value) {
  std::lock_guard<std::mutex> lock(life_mutex);
  if (!settings.set(name, value))
    return fail(HVD_INVALID, std::string("unknown setting or value: ") + name + "=" + value);
  return HVD_OK;
}

int32_t hvd_plan_links(const hvd_world* world, const int32_t* members, int32_t n_members, int32_t process_set,
                       hvd_link* out, int32_t cap) {
  return guarded<int32_t>([&] {
    hvd::Topology topology(*world);
    auto links = hvd::plan_links(topology, {members, members + n_members}, process_set);
    for (size_t i = 0; i < links.size() && static_cast<int32_t>(i) < cap; ++i) out[i] = links[i];
    return static_cast<int32_t>(links.size());
  });
}

int32_t hvd_shm_create(int32_t local_size) {
  return guarded<int32_t>(
      [&] { return hvd::Segment::create(local_size, static_cast<size_t>(settings.shm_slot_bytes)); });
}

int32_t hvd_doorbell_create(void) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd >= 0 ? fd : fail(HVD_UNKNOWN, std::string("cannot create an eventfd: ") + std::strerror(errno));
}

int32_t hvd_start(const hvd_world* world, const hvd_link* links, int32_t n_links) {
  std::lock_guard<std::mutex> lock(life_mutex);
  if (engine.load()) return fail(HVD_INVALID, "the engine is running already");
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
  return guarded<int32_t>([&] {
    if (world->struct_size != sizeof(hvd_world))
      throw Refused(HVD_INVALID, "hvd_world of another version of the header");
    auto e = std::make_shared<Engine>(*world, std::vector<hvd_link>(links, links + n_links), settings);
    e->set_where(where_callback);
    engine.store(e);
    forked = false;
    return HVD_OK;
  });
}

int32_t hvd_stop([[maybe_unused]] const char* reason) {
  std::lock_guard<std::mutex> lock(life_mutex);
  auto e = engine.load();
  if (!e) return HVD_OK;
  e->stop();
  engine.store(nullptr);
  return HVD_OK;
}

int32_t hvd_is_running(void) { return engine.load() != nullptr; }

int32_t hvd_check(void) {
  return guarded<int32_t>([&] {
    running()->check();
    return HVD_OK;
  });
}

int32_t hvd_abort(const char* reason) {
  return guarded<int32_t>([&] {
    running()->abort(reason);
    return HVD_OK;
  });
}

int32_t hvd_rank(void) {
  return query([](Engine& e) { return e.topology.rank; });
}
int32_t hvd_size(void) {
  return query([](Engine& e) { return e.topology.size; });
}
int32_t hvd_local_rank(void) {
  return query([](Engine& e) { return e.topology.local_rank(); });
}
int32_t hvd_local_size(void) {
  return query([](Engine& e) { return e.topology.local_size(); });
}
int32_t hvd_cross_rank(void) {
  return query([](Engine& e) { return e.topology.cross_rank(); });
}
int32_t hvd_cross_size(void) {
  return query([](Engine& e) { return e.topology.cross_size(); });
}
int32_t hvd_is_homogeneous(void) {
  return query([](Engine& e) { return static_cast<int>(e.topology.homogeneous()); });
}

int32_t hvd_add_process_set(const int32_t* ranks, int32_t n) {
  return guarded<int32_t>([&] { return running()->add_process_set({ranks, ranks + n}); });
}

int32_t hvd_attach_links(const hvd_link* links, int32_t n_links) {
  return guarded<int32_t>([&] {
    running()->attach_links({links, links + n_links});
    return HVD_OK;
  });
}

int32_t hvd_remove_process_set(int32_t id) {
  return guarded<int32_t>([&] {
    running()->remove_process_set(id);
    return HVD_OK;
  });
}

int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t cap) {
  return guarded<int32_t>([&] {
    auto members = running()->process_set_ranks(id);
    if (members.empty()) throw Refused(HVD_INVALID, "Process set does not exist or has not been registered.");
    std::copy_n(members.begin(), std::min<size_t>(members.size(), static_cast<size_t>(std::max(cap, 0))), ranks);
    return static_cast<int32_t>(members.size());
  });
}

int32_t hvd_process_set_ids(int32_t* ids, int32_t cap) {
  return guarded<int32_t>([&] {
    auto all = running()->process_set_ids();
    std::copy_n(all.begin(), std::min<size_t>(all.size(), static_cast<size_t>(std::max(cap, 0))), ids);
    return static_cast<int32_t>(all.size());
  });
}

int64_t hvd_submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                   void* context) {
  return guarded<int64_t>([&] { return running()->submit(requests, n, flags, alloc, done, context); });
}

int64_t hvd_run(const hvd_request* requests, int32_t n, double timeout_s, int32_t* status) {
  return guarded<int64_t>([&] {
    auto e = running();
    int64_t handle = e->submit(requests, n, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
    hvd::Status outcome = e->wait(handle, timeout_s);
    *status = outcome.code;
    if (!outcome.ok()) last_error = outcome.text;
    return handle;
  });
}

int32_t hvd_poll(int64_t handle) {
  return guarded<int32_t>([&] { return running()->poll(handle); });
}

int32_t hvd_wait(int64_t handle, double timeout_s) {
  return guarded<int32_t>([&] {
    hvd::Status outcome = running()->wait(handle, timeout_s);
    if (!outcome.ok()) last_error = outcome.text;
    return outcome.code;
  });
}

int32_t hvd_result(int64_t handle, int32_t index, hvd_output* out) {
  return guarded<int32_t>([&] {
    auto submission = running()->find(handle);
    if (!submission || index < 0 || index >= static_cast<int32_t>(submission->entries.size()))
      throw Refused(HVD_INVALID, "unknown handle " + std::to_string(handle));
    if (!submission->done) throw Refused(HVD_INVALID, "not done yet");
    hvd::Entry& e = submission->entries[index];
    out->data = e.output;
    out->shape = e.output_shape.data();
    out->ndim = static_cast<int32_t>(e.output_shape.size());
    out->splits = e.received_splits.data();
    out->n_splits = static_cast<int32_t>(e.received_splits.size());
    out->value = e.value;
    return HVD_OK;
  });
}

void* hvd_take(int64_t handle, int32_t index) {
  auto e = engine.load();
  auto submission = e ? e->find(handle) : nullptr;
  if (!submission || !submission->done || index < 0 || index >= static_cast<int32_t>(submission->entries.size())) {
    fail(HVD_INVALID, "unknown handle " + std::to_string(handle));
    return nullptr;
  }
  return std::exchange(submission->entries[index].owned, nullptr);
}

void hvd_free(void* data) { std::free(data); }

void hvd_release(int64_t handle) {
  if (auto e = engine.load()) e->release(handle);
}

const char* hvd_last_error(void) { return last_error.c_str(); }

int32_t hvd_timeline_start(const char* path, int32_t mark_cycles) {
  return guarded<int32_t>([&] {
    running()->start_timeline(path, mark_cycles != 0);
    return HVD_OK;
  });
}

int32_t hvd_timeline_stop(void) {
  return guarded<int32_t>([&] {
    running()->stop_timeline();
    return HVD_OK;
  });
}

int64_t hvd_metrics(char* buffer, int64_t cap) {
  return guarded<int64_t>([&] {
    std::string json = running()->metrics();
    if (cap > 0) {
      size_t n = std::min(json.size(), static_cast<size_t>(cap - 1));
      std::memcpy(buffer, json.data(), n);
      buffer[n] = 0;
    }
    return static_cast<int64_t>(json.size());
  });
}

void hvd_set_where(hvd_where_fn where) {
  where_callback = where;
  if (auto e = engine.load()) e->set_where(where);
}

}  // extern "C"
