// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/cuda_path.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "paths/cuda/driver.h"
#include "util/clock.h"
#include "util/threads.h"

namespace hvd::cuda {
namespace {

// Bytes that a batch moves, by which all members choose its way.
size_t bytes_of(const PlannedBatch& batch) {
  int64_t total = 0;
  for (const auto& agreed : batch.agreed) total += payload_bytes(agreed->description, agreed->shares);
  return static_cast<size_t>(total);
}

// The GPU of each member that sent one; -1 where a rank has joined.
std::vector<int> devices_of(const PlannedBatch& batch) {
  std::vector<int> devices;
  for (int rank : batch.layout->members) {
    int device = -1;
    for (const Share& share : batch.agreed[0]->shares)
      if (share.rank == rank) device = share.device;
    devices.push_back(device);
  }
  return devices;
}

bool matches(const std::vector<int>& wanted, const std::vector<int>& there) {
  return std::equal(wanted.begin(), wanted.end(), there.begin(), [](int w, int t) { return w < 0 || w == t; });
}

}  // namespace

CudaPath::~CudaPath() {  // before the tools they use
  leaving_.clear();
  teams_.clear();
}

bool CudaPath::serves(int32_t device, const SetLayout& /*layout*/) const { return device >= 0; }

void CudaPath::prepare(const hvd_request& request, Tensor& tensor, const Tensor* before) {
  std::string why;
  if (!loaded_driver() && !load_driver(settings_.cuda_library, &why))
    throw Refused(HVD_INVALID, tensor.description.name + " is said to be on a GPU, but " + why);
  used_device_ = tensor.device;
  if (is_per_thread(tensor.stream)) tensor.in_stream = false;
  if (request.kind == HVD_JOIN || request.ready_event) return;
  try {
    bool shared = before && before->ready && before->device == tensor.device && before->stream == tensor.stream;
    // Who is served on its own stream needs no moment; a timeline wants to know when that had its input.
    bool late = tensor.late && !(tensor.in_stream && traced_);
    tensor.ready = shared ? before->ready
                          : ready_.after(tensor.device, static_cast<Stream>(request.stream), late, traced_,
                                         tensor.description.name);
  } catch (const CudaError& e) {
    throw Refused(HVD_UNKNOWN, tensor.description.name + ": " + e.what());
  }
}

std::shared_ptr<Tools> CudaPath::tools_of(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto known = tools_.find(device); known != tools_.end()) return known->second;
  auto tools = std::make_shared<Tools>(Device::get(device));  // may throw
  tools_[device] = tools;
  return tools;
}

// Where this rank's part of the batch lies, or its zeros.
int CudaPath::own_device(const PlannedBatch& batch) const {
  for (const Tensor* tensor : batch.tensors)
    if (tensor) return tensor->device;
  if (used_device_ >= 0) return used_device_;
  int count = 0;
  HVD_CUDA(device_count, &count);
  for (int device = 0; device < count; ++device) {
    unsigned flags = 0;
    int active = 0;
    HVD_CUDA(primary_state, device, &flags, &active);
    if (active) return device;
  }
  return count ? topology_.local_rank() % count : 0;
}

Team* CudaPath::find_team(const PlannedBatch& batch) const {
  auto known = teams_.find(batch.process_set);
  if (known == teams_.end()) return nullptr;
  std::vector<int> wanted = devices_of(batch);
  // All members have made the same teams in the same order, so all find the same one.
  for (auto it = known->second.rbegin(); it != known->second.rend(); ++it)
    if (matches(wanted, (*it)->devices())) return it->get();
  return nullptr;
}

bool CudaPath::needs_no_plan(const PlannedBatch& batch) const {
  const Team* team = find_team(batch);
  return team && !team->through_host() && team->choice().error.empty();
}

Team& CudaPath::team_of(const PlannedBatch& batch) {
  if (Team* team = find_team(batch)) return *team;
  std::string why;
  if (!load_driver(settings_.cuda_library, &why)) throw CudaError(kDeinitialized, why);
  auto team = std::make_shared<Team>(tools_of(own_device(batch)), host_, batch, topology_.host_of_rank, settings_);
  std::lock_guard<std::mutex> lock(mutex_);
  teams_[batch.process_set].push_back(team);
  return *team;
}

void CudaPath::start(PlannedBatch& batch, BatchEnd& end) {
  try {
    if (aborted_) throw JobAborted("a collective was aborted");
    traced_ = batch.phases != nullptr;
    if (!leaving_.empty()) tidy();
    Team& team = team_of(batch);
    if (aborted_) team.abort();  // it may be too new for abort() to have seen it
    if (team.choice().error.empty()) team.run(batch, bytes_of(batch));
    host_.take_back();
    if (!team.choice().error.empty()) return end.ended(batch, {HVD_PRECONDITION, team.choice().error});
  } catch (const CudaError& e) {
    throw JobAborted(topology_.describe() + ": " + e.what());
  } catch (const NcclError& e) {
    throw JobAborted(topology_.describe() + ": " + e.what());
  }
  end.ended(batch, {});
}

// A peer's GPU may come to what is under way much later; to wait for it here would keep this rank from all other sets.
void CudaPath::remove_set(int32_t id) {
  auto it = teams_.find(id);
  if (it == teams_.end()) return;
  for (auto& team : it->second) team->leave();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    leaving_.insert(leaving_.end(), it->second.begin(), it->second.end());
    teams_.erase(it);
  }
  tidy();
}

void CudaPath::tidy() {
  std::vector<std::shared_ptr<Team>> gone;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& team : leaving_)
    if (team->left()) gone.push_back(team);
  std::erase_if(leaving_, [&](auto& team) { return std::find(gone.begin(), gone.end(), team) != gone.end(); });
}

void CudaPath::tune(const Settings& settings) {
  settings_.gpu_direct_bytes = settings.gpu_direct_bytes;
  for (auto& [set, teams] : teams_)
    for (auto& team : teams) team->direct_up_to(static_cast<size_t>(settings.gpu_direct_bytes));
}

void CudaPath::abort(const std::string& /*why*/) {
  if (aborted_.exchange(true)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, teams] : teams_)
    for (auto& team : teams) team->abort();
  for (auto& team : leaving_) team->abort();
}

void CudaPath::leave_memory(double seconds) {
  double deadline = now_s() + seconds;
  for (auto& [number, tools] : tools_) tools->device->drained(deadline - now_s());
}

void CudaPath::copy_output(Tensor& tensor, void* to, void* stream) {
  auto block = std::static_pointer_cast<Outputs::Block>(tensor.on_device);
  std::shared_ptr<Device> device = Device::get(tensor.device);
  InContext in(*device);
  size_t bytes = item_size(tensor.description.dtype);
  for (int64_t n : tensor.output_shape) bytes *= static_cast<size_t>(n);
  auto raw = static_cast<Stream>(stream);
  if (bytes) HVD_CUDA(copy_async, address_of(to), block->address, bytes, raw);
  block->last_use = device->record(raw);
}

std::vector<DeviceWork> CudaPath::take_work(bool last) {
  std::vector<DeviceWork> done;
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    for (auto& [device, tools] : tools_) tools->trace.take(&done, last);
  } catch (const CudaError&) {  // whoever looks next at a result hears of it
  }
  return done;
}

std::vector<int> CudaPath::descriptors() const {
  std::vector<int> found;
  // In a child the thread that holds it may not be there to let go.
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return found;
  for (auto& [device, tools] : tools_)
    if (int fd = tools->room.descriptor(); fd >= 0) found.push_back(fd);
  return found;
}

std::string CudaPath::report() {
  const Driver* cuda = loaded_driver();
  if (!cuda) return "";
  std::ostringstream out;
  out << "{\"driver\": " << cuda->version;
  std::lock_guard<std::mutex> lock(mutex_);
  if (const Nccl* nccl = loaded_nccl())
    out << ", \"nccl\": \"" << nccl->version_text() << "\", \"nccl_path\": \"" << nccl->path
        << "\", \"nccl_origin\": \"" << nccl->origin << "\"";
  out << ", \"sets\": [";
  bool first = true;
  for (auto& [id, teams] : teams_)
    for (auto& team : teams) {
      out << (first ? "" : ", ") << team->report();
      first = false;
    }
  out << "]}";
  return out.str();
}

}  // namespace hvd::cuda
