// SPDX-License-Identifier: Apache-2.0
//
// Allreduce as two ops, for a TensorFlow whose done callbacks cannot be moved (see deferred_done.h).
//
// There an asynchronous kernel has to hold its thread until the engine is done, and a few of them, waiting
// for different tensors on different ranks, hold all threads for ever. HorovodEnqueueAllreduce submits and
// returns a ticket at once; one HorovodWait at the end of the step holds one thread for all of them.
#pragma once

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

void* create_enqueue(TF_OpKernelConstruction* construction);
void compute_enqueue(void* kernel, TF_OpKernelContext* context);
void delete_enqueue(void* kernel);

void compute_wait(void* kernel, TF_OpKernelContext* context);

// HorovodProbe: does nothing, but shows whether a done callback can be moved here.
void compute_probe(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

}  // namespace horovod::tensorflow
