// SPDX-License-Identifier: Apache-2.0
//
// What a node says about its collective: read once, when TensorFlow builds the kernel.
#pragma once

#include <string>
#include <vector>

#include "glue/tensorflow/tf_api.h"
#include "horovod/core.h"

namespace horovod::tensorflow {

struct Attributes {
  std::string name;                // on the wire
  std::vector<std::string> names;  // of each tensor on the wire, where a node has several on their own
  int64_t reduce_op = 1;
  int64_t root_rank = -1;
  int64_t process_set_id = 0;
  float prescale = 1.0f;
  float postscale = 1.0f;

  // Reads the attributes the node's op type has; the others keep their defaults. On failure the
  // construction is marked failed and TensorFlow never calls the kernel.
  void read(TF_OpKernelConstruction* construction);

  // A request of this kind with what the attributes say; the name and the tensor are the caller's to fill in.
  hvd_request request(int32_t kind) const;
};

// Name of member `index` of a group of `count`.
std::string member_name(const std::string& group, int index, int count);

}  // namespace horovod::tensorflow
