// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/shapes.h"

#include <cstdint>
#include <memory>
#include <string>

#include "glue/tensorflow/attributes.h"

namespace horovod::tensorflow {
namespace {

struct Deleter {
  void operator()(TF_ShapeHandle* handle) const { tf.TF_DeleteShapeHandle(handle); }
};
using Handle = std::unique_ptr<TF_ShapeHandle, Deleter>;

bool failed(const TF_Status* status) { return tf.TF_GetCode(status) != 0; }

Handle input_shape(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  Handle shape(tf.TF_NewShapeHandle());
  tf.TF_ShapeInferenceContextGetInput(context, index, shape.get(), status);
  return shape;
}

Handle vector_of_unknown_length(TF_ShapeInferenceContext* context) {
  return Handle(tf.TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(-1)));
}

// Output `index` = input `index` with an unknown first dimension.
void set_rows_unknown(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  Handle shape = input_shape(context, index, status);
  if (failed(status)) return;
  Handle result(tf.TF_NewShapeHandle());
  if (tf.TF_ShapeInferenceContextRankKnown(context, shape.get()) &&
      tf.TF_ShapeInferenceContextRank(context, shape.get()) > 0) {
    Handle rows = vector_of_unknown_length(context), rest(tf.TF_NewShapeHandle());
    tf.TF_ShapeInferenceContextSubshape(context, shape.get(), 1, INT64_MAX, rest.get(), status);
    if (failed(status)) return;
    tf.TF_ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), result.get(), status);
    if (failed(status)) return;
    tf.TF_ShapeInferenceContextSetOutput(context, index, result.get(), status);
  } else {  // unknown rank, or a scalar which the kernel refuses with its reason
    tf.TF_ShapeInferenceContextSetOutput(context, index, result.get(), status);
  }
}

void refuse_scalars(TF_ShapeInferenceContext* context, TF_Status* status, const char* op) {
  const int64_t count = tf.TF_ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < count; ++i) {
    Handle shape = input_shape(context, i, status);
    if (failed(status)) return;
    if (tf.TF_ShapeInferenceContextRankKnown(context, shape.get()) &&
        tf.TF_ShapeInferenceContextRank(context, shape.get()) == 0) {
      tf.TF_SetStatus(status, kInvalidArgument, (std::string(op) + " does not support scalar inputs.").c_str());
      return;
    }
    set_rows_unknown(context, i, status);
    if (failed(status)) return;
  }
}

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int64_t count = tf.TF_ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < count; ++i) {
    Handle shape = input_shape(context, i, status);
    if (failed(status)) return;
    tf.TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
    if (failed(status)) return;
  }
}

void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int64_t count = tf.TF_ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < count && !failed(status); ++i) set_rows_unknown(context, i, status);
}

void scattered_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  refuse_scalars(context, status, "HorovodReducescatter");
}

void grouped_scattered_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  refuse_scalars(context, status, "HorovodGroupedReducescatter");
}

void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  set_rows_unknown(context, 0, status);
  if (failed(status)) return;
  Handle splits = vector_of_unknown_length(context);
  tf.TF_ShapeInferenceContextSetOutput(context, 1, splits.get(), status);
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void scalar_output(TF_ShapeInferenceContext* context, TF_Status* status) {
  Handle scalar(tf.TF_ShapeInferenceContextScalar(context));
  tf.TF_ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

}  // namespace horovod::tensorflow
