// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the collectives: each turns its inputs into requests, submits them to the engine and
// returns; the engine's completion finishes the node.
#pragma once

#include <cstdint>

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

// Creates a kernel of a kind (hvd_kind); `grouped` makes its inputs one atomic group.
template <int32_t kind, bool grouped>
void* create_collective(TF_OpKernelConstruction* construction);
void compute_collective(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
void delete_collective(void* kernel);

}  // namespace horovod::tensorflow
