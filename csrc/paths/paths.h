// SPDX-License-Identifier: Apache-2.0
// The data paths of an engine, and the choice between them. Filled before the engine runs and not changed after that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paths/data_path.h"

namespace hvd {

class Paths {
 public:
  // Earlier ones are preferred.
  void add(std::unique_ptr<DataPath> path) { paths_.push_back(std::move(path)); }
  // The path for this kind of memory and process set, the same on every rank; null if there is none.
  DataPath* choose(int32_t device, const SetLayout& layout) const {
    for (const auto& path : paths_)
      if (path->serves(device, layout)) return path.get();
    return nullptr;
  }

  void add_set(int32_t id, const std::shared_ptr<const SetLayout>& layout) {
    for (const auto& path : paths_) path->add_set(id, layout);
  }
  void remove_set(int32_t id) {
    for (const auto& path : paths_) path->remove_set(id);
  }
  void tune(const Settings& settings) {
    for (const auto& path : paths_) path->tune(settings);
  }
  // The host's path, which is the last, comes first: all ranks of the host know that the job has ended before a device
  // is let go whose neighbours could take what it leaves behind for a result.
  void abort(const std::string& why) {
    for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) (*path)->abort(why);
  }
  void leave_memory(double seconds) {
    for (const auto& path : paths_) path->leave_memory(seconds);
  }
  // The first that has something to say.
  std::string report() const {
    for (const auto& path : paths_)
      if (std::string text = path->report(); !text.empty()) return text;
    return "{}";
  }
  std::vector<DeviceWork> take_work(bool last) const {
    std::vector<DeviceWork> all;
    for (const auto& path : paths_)
      for (DeviceWork& work : path->take_work(last)) all.push_back(std::move(work));
    return all;
  }
  int waiting_for() const {
    for (const auto& path : paths_)
      if (int rank = path->waiting_for(); rank >= 0) return rank;
    return -1;
  }
  std::vector<int> descriptors() const {
    std::vector<int> all;
    for (const auto& path : paths_)
      for (int fd : path->descriptors()) all.push_back(fd);
    return all;
  }

 private:
  std::vector<std::unique_ptr<DataPath>> paths_;
};

}  // namespace hvd
