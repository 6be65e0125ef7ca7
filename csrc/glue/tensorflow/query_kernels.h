// SPDX-License-Identifier: Apache-2.0
//
// rank, size and the like as nodes, evaluated when the graph runs.
#pragma once

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

enum class Query { kRank, kSize, kLocalRank, kLocalSize, kIncluded };

template <Query query>
void* create_query(TF_OpKernelConstruction* construction);
void compute_query(void* kernel, TF_OpKernelContext* context);
void delete_query(void* kernel);

}  // namespace horovod::tensorflow
