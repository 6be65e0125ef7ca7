// SPDX-License-Identifier: Apache-2.0
// The C header over the one engine of this process.
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "control/knobs.h"
#include "engine/engine.h"
#include "horovod/core.h"
#include "host/segment.h"
#include "paths/host/mpi_library.h"
#include "paths/output_memory.h"
#include "util/log.h"
#include "util/shared_slot.h"
#include "world/link_plan.h"

namespace {

using hvd::Engine;
using hvd::Refused;

constexpr char kForkedText[] =
    "This process was forked from one that had called hvd.init(); the engine stays with the parent. Call Horovod only "
    "in the parent, or start the child with the spawn method and let it call hvd.init() itself.";
constexpr int32_t kMaxLocalSize = 1 << 14;

std::mutex life_mutex;   // start, stop and the settings, one at a time
hvd::Settings settings;  // guarded by life_mutex
hvd::SharedSlot<Engine> engine;
std::atomic<bool> forked{false};
std::atomic<hvd_where_fn> where_callback{nullptr};
std::atomic<int64_t> starts{0};  // engines that this process has had
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

// For pointers that a caller must not leave out.
template <typename T>
T* given(T* pointer, const char* what) {
  if (!pointer) throw Refused(HVD_INVALID, std::string(what) + " is missing");
  return pointer;
}

// A list of the caller's; an empty one may be null.
template <typename T>
std::vector<T> list(const T* items, int32_t n, const char* what) {
  if (n < 0) throw Refused(HVD_INVALID, std::to_string(n) + " " + what);
  if (n > 0) given(items, what);
  return {items, items + n};
}

// Copies as much as the caller has room for; the whole count is returned.
template <typename T>
int32_t copy_out(const std::vector<T>& items, T* out, int32_t cap) {
  if (cap > 0) std::copy_n(items.begin(), std::min(items.size(), static_cast<size_t>(cap)), given(out, "the list"));
  return static_cast<int32_t>(items.size());
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
  hvd::output_memory::after_fork();
  auto* inherited = new std::shared_ptr<Engine>(engine.unlocked());
  new (&engine) hvd::SharedSlot<Engine>();  // whoever held these locks is not here
  new (&life_mutex) std::mutex();
  if (!*inherited) return;
  hvd::QuitSignal::after_fork_in_child();
  for (int fd : (*inherited)->descriptors()) close(fd);
  forked = true;
}

// Everything hvd_start was given is ours from here on, whatever becomes of the start.
hvd::Inheritance adopt(const hvd_world& world, const hvd_link* links, int32_t n_links) {
  hvd::Inheritance inheritance;
  inheritance.links = hvd::adopt_links(links, n_links);
  inheritance.shared_memory = hvd::UniqueFd(world.shm_fd);
  if (world.doorbell_fds && world.host_of_rank && world.rank >= 0 && world.rank < world.size) {
    auto local_size = std::count(world.host_of_rank, world.host_of_rank + world.size, world.host_of_rank[world.rank]);
    for (int i = 0; i < local_size; ++i) inheritance.doorbells.emplace_back(world.doorbell_fds[i]);
  }
  return inheritance;
}

hvd::Settings settings_now() {
  std::lock_guard<std::mutex> lock(life_mutex);
  return settings;
}

template <typename F>
int32_t query(F value) {
  auto e = engine.load();
  return e ? value(*e) : -1;
}

// As much as fits, ended by a zero; returns the length needed.
int64_t copy_text(const std::string& text, char* buffer, int64_t cap) {
  if (cap > 0) {
    size_t n = std::min(text.size(), static_cast<size_t>(cap - 1));
    std::memcpy(given(buffer, "the buffer"), text.data(), n);
    buffer[n] = 0;
  }
  return static_cast<int64_t>(text.size());
}

hvd::Entry& completed_entry(hvd::Submission* submission, int64_t handle, int32_t index) {
  if (!submission) throw Refused(HVD_INVALID, "unknown handle " + std::to_string(handle));
  if (index < 0 || index >= static_cast<int32_t>(submission->entries.size()))
    throw Refused(HVD_INVALID, "handle " + std::to_string(handle) + " has no output " + std::to_string(index));
  if (!submission->done) throw Refused(HVD_INVALID, "not done yet");
  return submission->entries[index];
}

// For those who submit and wait in one call: device memory is waited for by the first request's stream.
constexpr uint32_t kRunFlags = HVD_WILL_WAIT | HVD_IN_STREAM;
hvd::Status wait_in_order(Engine& engine, int64_t handle, const hvd_request& first, double timeout_s) {
  return first.device >= 0 ? engine.wait_stream(handle, first.stream, timeout_s) : engine.wait(handle, timeout_s);
}

// After a wait: lets go of what is done.
int32_t let_go(Engine& engine, int64_t handle, const hvd::Status& outcome) {
  if (!outcome.ok()) last_error = outcome.text;
  if (outcome.code != HVD_TIMEOUT) engine.release(handle);
  return outcome.code;
}

}  // namespace

extern "C" {

int32_t hvd_api_version(void) { return HVD_API_VERSION; }

int32_t hvd_configure(const char* name, const char* value) {
  return guarded<int32_t>([&] {
    std::lock_guard<std::mutex> lock(life_mutex);
    std::string problem = settings.set(given(name, "the name"), given(value, "the value"));
    if (!problem.empty()) throw Refused(HVD_INVALID, problem);
    return HVD_OK;
  });
}

int32_t hvd_plan_links(const hvd_world* world, const int32_t* members, int32_t n_members, int32_t process_set,
                       hvd_link* out, int32_t cap) {
  return guarded<int32_t>([&] {
    hvd::Topology topology(*given(world, "the world"));
    return copy_out(hvd::plan_links(topology, list(members, n_members, "members"), process_set), out, cap);
  });
}

int32_t hvd_shm_create(int32_t local_size) {
  return guarded<int32_t>([&] {
    if (local_size < 1 || local_size > kMaxLocalSize)
      throw Refused(HVD_INVALID, "shared memory for " + std::to_string(local_size) + " ranks");
    return hvd::Segment::create(local_size, static_cast<size_t>(hvd::staging_bytes(settings_now())));
  });
}

int32_t hvd_doorbell_create(void) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd >= 0 ? fd : fail(HVD_UNKNOWN, std::string("cannot create an eventfd: ") + std::strerror(errno));
}

int32_t hvd_start(const hvd_world* world, const hvd_link* links, int32_t n_links) {
  return guarded<int32_t>([&] {
    if (given(world, "the world")->struct_size != sizeof(hvd_world))
      throw Refused(HVD_INVALID, "hvd_world of another version of the header");
    hvd::Inheritance inheritance = adopt(*world, links, n_links);
    std::lock_guard<std::mutex> lock(life_mutex);
    if (engine.load()) throw Refused(HVD_INVALID, "the engine is running already");
    static std::once_flag once;
    std::call_once(once, [] {
      pthread_atfork(hvd::output_memory::before_fork, hvd::output_memory::after_fork, after_fork_in_child);
    });
    auto e = std::make_shared<Engine>(hvd::Topology(*world), std::move(inheritance), settings);
    e->set_where(where_callback);
    hvd::output_memory::keep(static_cast<size_t>(settings.output_pool_bytes));
    ++starts;
    engine.store(e);
    forked = false;
    return HVD_OK;
  });
}

int32_t hvd_stop(const char* reason) {
  std::lock_guard<std::mutex> lock(life_mutex);
  auto e = engine.load();
  if (!e) return HVD_OK;
  e->stop(reason ? reason : "");
  engine.store(nullptr);
  hvd::output_memory::keep(0);
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
    running()->abort(given(reason, "the reason"));
    return HVD_OK;
  });
}

int32_t hvd_mpi_attach(const char* library_path, uint64_t communicator) {
  return guarded<int32_t>([&] {
    hvd::attach_mpi_library(given(library_path, "the path"), communicator);
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
  return guarded<int32_t>([&] { return running()->add_process_set(list(ranks, n, "ranks")); });
}

int32_t hvd_attach_links(const hvd_link* links, int32_t n_links) {
  return guarded<int32_t>([&] {
    auto adopted = hvd::adopt_links(links, n_links);
    running()->attach_links(std::move(adopted));
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
    return copy_out(members, ranks, cap);
  });
}

int32_t hvd_process_set_ids(int32_t* ids, int32_t cap) {
  return guarded<int32_t>([&] { return copy_out(running()->process_set_ids(), ids, cap); });
}

int64_t hvd_submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                   void* context) {
  return guarded<int64_t>([&] { return running()->submit(requests, n, flags, alloc, done, context); });
}

int32_t hvd_run(const hvd_request* requests, int32_t n, double timeout_s, int64_t* handle) {
  return guarded<int32_t>([&] {
    *given(handle, "the place for the handle") = 0;
    auto e = running();
    *handle = e->submit(requests, n, kRunFlags, nullptr, nullptr, nullptr);
    hvd::Status outcome = wait_in_order(*e, *handle, requests[0], timeout_s);
    if (!outcome.ok()) last_error = outcome.text;
    return outcome.code;
  });
}

int64_t hvd_call(const hvd_request* requests, int32_t n, double timeout_s) {
  return guarded<int64_t>([&] {
    auto e = running();
    if (e->call_quickly(requests, n)) return int64_t{0};
    int64_t handle = e->submit(requests, n, kRunFlags, nullptr, nullptr, nullptr);
    int32_t status = let_go(*e, handle, wait_in_order(*e, handle, requests[0], timeout_s));
    return status == HVD_TIMEOUT ? handle : int64_t{status};
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

int32_t hvd_finish(int64_t handle, double timeout_s) {
  return guarded<int32_t>([&] {
    auto e = running();
    return let_go(*e, handle, e->wait(handle, timeout_s));
  });
}

int32_t hvd_wait_stream(int64_t handle, void* stream, double timeout_s) {
  return guarded<int32_t>([&] {
    hvd::Status outcome = running()->wait_stream(handle, stream, timeout_s);
    if (!outcome.ok()) last_error = outcome.text;
    return outcome.code;
  });
}

int32_t hvd_copy_output(int64_t handle, int32_t index, void* to, void* stream) {
  return guarded<int32_t>([&] {
    running()->copy_output(handle, index, to, stream);
    return HVD_OK;
  });
}

int32_t hvd_result(int64_t handle, int32_t index, hvd_output* out) {
  return guarded<int32_t>([&] {
    given(out, "the place for the output");
    auto submission = running()->find(handle);
    hvd::Entry& e = completed_entry(submission.get(), handle, index);
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
  void* taken = nullptr;
  guarded<int32_t>([&] {
    auto submission = running()->find(handle);
    taken = std::exchange(completed_entry(submission.get(), handle, index).owned, nullptr);
    return HVD_OK;
  });
  return taken;
}

void* hvd_allocate(int64_t bytes) { return bytes < 0 ? nullptr : hvd::output_memory::take(static_cast<size_t>(bytes)); }

void hvd_free(void* data) { hvd::output_memory::give_back(data); }

void hvd_release(int64_t handle) {
  if (auto e = engine.load()) e->release(handle);
}

const char* hvd_last_error(void) { return last_error.c_str(); }

int32_t hvd_timeline_start(const char* path, int32_t mark_cycles) {
  return guarded<int32_t>([&] {
    running()->start_timeline(given(path, "the path"), mark_cycles != 0);
    return HVD_OK;
  });
}

int32_t hvd_timeline_stop(void) {
  return guarded<int32_t>([&] {
    running()->stop_timeline();
    return HVD_OK;
  });
}

int32_t hvd_timeline_active(void) {
  auto e = engine.load();
  return e && e->traced() ? 1 : 0;
}

void hvd_copied(const char* name, int32_t after, double began, double ended) {
  auto e = engine.load();
  if (e && name) e->copied(name, after != 0, began, ended);
}

int64_t hvd_metrics(char* buffer, int64_t cap) {
  return guarded<int64_t>([&] { return copy_text(running()->metrics(starts - 1), buffer, cap); });
}

int64_t hvd_now(char* buffer, int64_t cap) {
  return guarded<int64_t>([&] { return copy_text(running()->now(), buffer, cap); });
}

int64_t hvd_recent(char* buffer, int64_t cap) {
  return guarded<int64_t>([&] { return copy_text(running()->recent(), buffer, cap); });
}

int32_t hvd_mark(const char* text) {
  return guarded<int32_t>([&] {
    running()->mark(text);
    return HVD_OK;
  });
}

int64_t hvd_device_report(char* buffer, int64_t cap) {
  return guarded<int64_t>([&] { return copy_text(running()->device_report(), buffer, cap); });
}

void hvd_set_where(hvd_where_fn where) {
  where_callback = where;
  if (auto e = engine.load()) e->set_where(where);
}

}  // extern "C"
