// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow's tensors as the kernels hold them.
#pragma once

#include <memory>
#include <vector>

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { tf.TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;
using Shape = std::vector<int64_t>;

inline void read_shape(const TF_Tensor* tensor, Shape& shape) {
  shape.resize(static_cast<size_t>(tf.TF_NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = tf.TF_Dim(tensor, static_cast<int>(i));
}

inline Shape shape_of(const TF_Tensor* tensor) {
  Shape shape;
  read_shape(tensor, shape);
  return shape;
}

// Zero-element tensors may have no memory; the engine must not take that for a refusal.
inline void* data_of(const TF_Tensor* tensor) {
  static char nothing[64];
  void* data = tf.TF_TensorData(tensor);
  return data ? data : nothing;
}

inline Tensor input(TF_OpKernelContext* context, int index, Status& status) {
  TF_Tensor* tensor = nullptr;
  tf.TF_GetInput(context, index, &tensor, status);
  return Tensor(tensor);
}

}  // namespace horovod::tensorflow
