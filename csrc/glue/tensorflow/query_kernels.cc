// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/query_kernels.h"

#include <algorithm>
#include <vector>

#include "glue/tensorflow/attributes.h"
#include "horovod/core.h"

namespace horovod::tensorflow {
namespace {

// What graph code tests for; the numbers are part of the documented interface.
constexpr int32_t kNotInitialised = -1;
constexpr int32_t kUnknownSet = -3;

struct Kernel {
  Query query;
  int32_t process_set;
};

int32_t set_size(int32_t id) {
  if (hvd_rank() < 0) return kNotInitialised;
  int32_t members = hvd_process_set_ranks(id, nullptr, 0);
  return members < 0 ? kUnknownSet : members;
}

int32_t included(int32_t id) {
  int32_t count = set_size(id);
  if (count < 0) return count;
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  hvd_process_set_ranks(id, ranks.data(), count);
  return std::find(ranks.begin(), ranks.end(), hvd_rank()) != ranks.end();
}

int32_t answer(const Kernel& kernel) {
  switch (kernel.query) {
    case Query::kRank: return hvd_rank();
    case Query::kLocalRank: return hvd_local_rank();
    case Query::kLocalSize: return hvd_local_size();
    case Query::kSize: return set_size(kernel.process_set);
    case Query::kIncluded: return included(kernel.process_set);
  }
  return kNotInitialised;
}

}  // namespace

template <Query query>
void* create_query(TF_OpKernelConstruction* construction) {
  Attributes attributes;
  attributes.read(construction);
  return new Kernel{query, static_cast<int32_t>(attributes.process_set_id)};
}

template void* create_query<Query::kRank>(TF_OpKernelConstruction*);
template void* create_query<Query::kSize>(TF_OpKernelConstruction*);
template void* create_query<Query::kLocalRank>(TF_OpKernelConstruction*);
template void* create_query<Query::kLocalSize>(TF_OpKernelConstruction*);
template void* create_query<Query::kIncluded>(TF_OpKernelConstruction*);

void compute_query(void* kernel, TF_OpKernelContext* context) {
  Status status;
  TF_Tensor* output = tf.TF_AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof(int32_t), status);
  if (!status.ok()) return tf.TF_OpKernelContext_Failure(context, status);
  *static_cast<int32_t*>(tf.TF_TensorData(output)) = answer(*static_cast<const Kernel*>(kernel));
  tf.TF_DeleteTensor(output);
}

void delete_query(void* kernel) { delete static_cast<Kernel*>(kernel); }

}  // namespace horovod::tensorflow
