// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/attributes.h"

namespace horovod::tensorflow {
namespace {

class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* construction) : construction_(construction) {}

  void read(const char* name, int64_t* value) {
    if (has(name)) tf.TF_OpKernelConstruction_GetAttrInt64(construction_, name, value, status_);
  }
  void read(const char* name, float* value) {
    if (has(name)) tf.TF_OpKernelConstruction_GetAttrFloat(construction_, name, value, status_);
  }
  void read(const char* name, bool* value) {
    if (!has(name)) return;
    unsigned char byte = 0;
    tf.TF_OpKernelConstruction_GetAttrBool(construction_, name, &byte, status_);
    *value = byte != 0;
  }
  void read(const char* name, std::string* value) {
    if (!has(name)) return;
    int32_t list_size = 0, size = 0;
    tf.TF_OpKernelConstruction_GetAttrSize(construction_, name, &list_size, &size, status_);
    if (!status_.ok() || size <= 0) return;
    value->resize(static_cast<size_t>(size));
    tf.TF_OpKernelConstruction_GetAttrString(construction_, name, value->data(), value->size(), status_);
  }
  void read(const char* name, std::vector<std::string>* values) {
    if (!has(name)) return;
    int32_t count = 0, size = 0;
    tf.TF_OpKernelConstruction_GetAttrSize(construction_, name, &count, &size, status_);
    if (!status_.ok() || count <= 0) return;
    std::vector<char> storage(static_cast<size_t>(size));
    std::vector<char*> texts(static_cast<size_t>(count));
    std::vector<size_t> lengths(texts.size());
    tf.TF_OpKernelConstruction_GetAttrStringList(construction_, name, texts.data(), lengths.data(), count,
                                                 storage.data(), storage.size(), status_);
    if (!status_.ok()) return;
    for (size_t i = 0; i < texts.size(); ++i) values->emplace_back(texts[i], lengths[i]);
  }
  void finish() {
    if (!status_.ok()) tf.TF_OpKernelConstruction_Failure(construction_, status_);
  }

 private:
  bool has(const char* name) {
    return status_.ok() && tf.TF_OpKernelConstruction_HasAttr(construction_, name, status_) && status_.ok();
  }

  TF_OpKernelConstruction* construction_;
  Status status_;
};

}  // namespace

void Attributes::read(TF_OpKernelConstruction* construction) {
  Reader reader(construction);
  bool ignore_name_scope = false;
  reader.read("tensor_name", &name);
  reader.read("tensor_names", &names);
  reader.read("ignore_name_scope", &ignore_name_scope);
  reader.read("reduce_op", &reduce_op);
  reader.read("root_rank", &root_rank);
  reader.read("process_set_id", &process_set_id);
  reader.read("prescale_factor", &prescale);
  reader.read("postscale_factor", &postscale);
  reader.finish();
  if (name.empty()) {  // in a graph the node's name is unique and the same on every rank
    TF_StringView node = tf.TF_OpKernelConstruction_GetName(construction);
    name.assign(node.data, node.len);
  }
  // Tensors that share a node are called what nodes of their own in its place would be called.
  const size_t scope = name.rfind('/') + 1;  // 0: none
  if (ignore_name_scope) name.erase(0, scope);
  else
    for (std::string& own : names) own.insert(0, name, 0, scope);
}

hvd_request Attributes::request(int32_t kind) const {
  hvd_request request{};
  request.struct_size = sizeof(request);
  request.kind = kind;
  request.prescale = prescale;
  request.postscale = postscale;
  request.reduce_op = static_cast<int32_t>(reduce_op);
  request.root = static_cast<int32_t>(root_rank);
  request.process_set = static_cast<int32_t>(process_set_id);
  request.device = -1;
  return request;
}

std::string member_name(const std::string& group, int index, int count) {
  return group + "_" + std::to_string(index + 1) + "of" + std::to_string(count);
}

}  // namespace horovod::tensorflow
