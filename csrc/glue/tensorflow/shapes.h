// SPDX-License-Identifier: Apache-2.0
//
// Static shapes of the ops' outputs, for graphs.
#pragma once

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status);
// As unknown_rows, and refuses scalars with the op's own name in the text.
void scattered_rows(TF_ShapeInferenceContext* context, TF_Status* status);
void grouped_scattered_rows(TF_ShapeInferenceContext* context, TF_Status* status);
void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
void scalar_output(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace horovod::tensorflow
