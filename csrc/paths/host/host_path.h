// SPDX-License-Identifier: Apache-2.0
// The data path of host memory. A batch runs to its end inside start(), on the driving thread: no hand-over, no lock.
//
// Driving thread only, but for abort(), waiting_for() and descriptors().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/lane.h"
#include "host/segment.h"
#include "net/link_security.h"
#include "net/open_link.h"
#include "paths/data_path.h"
#include "paths/host/comm.h"
#include "world/topology.h"

namespace hvd {

class HostPath : public DataPath, public Courier {
 public:
  struct Options {
    double spin_us = 0;     // how long a wait spins before it sleeps
    bool roomy = true;      // there is a core for every rank of this host
    bool over_mpi = false;  // between hosts: MPI instead of sockets
  };
  HostPath(const Topology& topology, Segment& segment, const LinkSecurity& security, Options options);

  // Several hosts: gives sets that wait for their links what is there for them. The rest is closed.
  void attach(std::vector<OpenLink> links);

  bool serves(int32_t device, const SetLayout& layout) const override;
  void add_set(int32_t id, const std::shared_ptr<const SetLayout>& layout) override;
  void remove_set(int32_t id) override;
  void tune(const Settings& settings) override;
  // How long waits spin from now on.
  void set_spin(double microseconds) { lane_.set_spin(microseconds); }
  void start(PlannedBatch& batch, BatchEnd& end) override;
  void abort(const std::string& why) override;
  int waiting_for() const override;
  std::vector<int> descriptors() const override;

  void from_first_member(const PlannedBatch& batch, void* bytes, size_t n) override;

  // For another path inside its start(), on every rank of the set alike: the set's collectives over host memory. It may
  // be asked for several times in a batch, each time for one more collective; take_back() ends it.
  Comm& lend(const PlannedBatch& batch);
  void take_back();
  // Throws JobAborted if the job has ended.
  void check() { lane_.check(); }

 private:
  Comm& comm_of(const PlannedBatch& batch);
  void allreduce(Comm& comm, const PlannedBatch& batch);
  void reducescatter(Comm& comm, const PlannedBatch& batch);
  void allgather(Comm& comm, const PlannedBatch& batch);
  void broadcast(Comm& comm, const PlannedBatch& batch);
  void alltoall(Comm& comm, const PlannedBatch& batch);

  const Topology& topology_;
  Segment& segment_;
  const LinkSecurity& security_;
  const Options options_;
  Lane lane_;
  Sizes sizes_;
  std::map<int32_t, std::unique_ptr<Comm>> comms_;
  Spans spans_;           // of the running batch
  Comm* lent_ = nullptr;  // to another path
};

}  // namespace hvd
