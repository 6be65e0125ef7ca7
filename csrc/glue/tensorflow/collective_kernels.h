// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the collectives: each turns its inputs into requests, submits them to the engine and
// returns; the engine's completion finishes the node.
#pragma once

#include <cstdint>

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

// What the inputs of a node are: one tensor, one atomic group, or several that only share the node.
enum class Form { kOne, kGroup, kApart };

// Creates a kernel of a kind (hvd_kind). `on_cpu`: its outputs are the host's own business, while those of a GPU's node
// are wanted in memory that TensorFlow copies from quickly.
template <int32_t kind, Form form, bool on_cpu>
void* create_collective(TF_OpKernelConstruction* construction);
void compute_collective(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
void delete_collective(void* kernel);

}  // namespace horovod::tensorflow
