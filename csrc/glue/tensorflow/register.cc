// SPDX-License-Identifier: Apache-2.0
//
// The op types and their kernels, registered when tf.load_op_library maps this file.
//
// Every op is declared stateful: TensorFlow then neither folds it on constants, nor merges two with equal
// attributes, nor drops one whose result nobody reads. (The Python side tells automatic control dependencies
// not to put them in program order, which would run them one after the other and forbid fusion.)
//
// On GPUs the same kernels run: they ask for all inputs and outputs in host memory, and TensorFlow copies.
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "glue/tensorflow/collective_kernels.h"
#include "glue/tensorflow/deferred_done.h"
#include "glue/tensorflow/enqueue_wait.h"
#include "glue/tensorflow/query_kernels.h"
#include "glue/tensorflow/shapes.h"
#include "horovod/core.h"

namespace horovod::tensorflow {
namespace {

std::string* problem() {
  static auto* text = new std::string;  // leaked: read after static destructors might have run
  return text;
}

using Lines = std::initializer_list<const char*>;

void note(const char* op, Status& status) {
  if (!status.ok()) *problem() += std::string(op) + ": " + tf.TF_Message(status) + "; ";
}

// The names of an op's inputs and outputs.
std::map<std::string, std::vector<std::string>>& arguments() {
  static auto* by_op = new std::map<std::string, std::vector<std::string>>;
  return *by_op;
}

// make(device) gives the builder of the op's kernel there.
template <class Make>
void kernels(const char* op, Make make) {
  for (const char* device : {"CPU", "GPU"}) {
    TF_KernelBuilder* builder = make(device);
    if (std::string(device) == "GPU")
      for (const std::string& name : arguments()[op]) tf.TF_KernelBuilder_HostMemory(builder, name.c_str());
    Status status;
    tf.TF_RegisterKernelBuilder(op, builder, status);
    note(op, status);
  }
}

void define(const char* op, Lines attributes, Lines inputs, Lines outputs, ShapeFn shapes) {
  TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(op);
  for (const char* line : attributes) tf.TF_OpDefinitionBuilderAddAttr(builder, line);
  for (const char* line : inputs) tf.TF_OpDefinitionBuilderAddInput(builder, line);
  for (const char* line : outputs) tf.TF_OpDefinitionBuilderAddOutput(builder, line);
  for (const Lines& lines : {inputs, outputs})  // "tensor: T" -> "tensor"
    for (const std::string& line : std::vector<std::string>(lines.begin(), lines.end()))
      arguments()[op].push_back(line.substr(0, line.find(':')));
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes);
  Status status;
  tf.TF_RegisterOpDefinition(builder, status);
  note(op, status);
}

template <int32_t kind, Form form = Form::kOne>
void collective(const char* op) {
  kernels(op, [&](const char* device) {
    const bool on_cpu = std::string(device) == "CPU";
    CreateFn create = on_cpu ? create_collective<kind, form, true> : create_collective<kind, form, false>;
    return tf.TF_NewAsyncKernelBuilder(op, device, create, compute_collective, delete_collective);
  });
}

void query(const char* op, CreateFn create, bool takes_set) {
  if (takes_set) define(op, {"process_set_id: int = 0"}, {}, {"value: int32"}, scalar_output);
  else define(op, {}, {}, {"value: int32"}, scalar_output);
  kernels(op,
          [&](const char* device) { return tf.TF_NewKernelBuilder(op, device, create, compute_query, delete_query); });
}

#define NUMBERS "uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float32, float64"
constexpr const char* kNumber = "T: {" NUMBERS "}";
constexpr const char* kAny = "T: {" NUMBERS ", bool}";
constexpr const char* kAnyList = "T: list({" NUMBERS ", bool})";
constexpr const char* kNumberList = "T: list({" NUMBERS "}) >= 1";
constexpr const char* kCount = "N: int >= 1";
constexpr const char* kName = "tensor_name: string = ''";
constexpr const char* kNames = "tensor_names: list(string)";
constexpr const char* kScope = "ignore_name_scope: bool = false";
constexpr const char* kSet = "process_set_id: int = 0";
constexpr const char* kOp = "reduce_op: int";
constexpr const char* kPrescale = "prescale_factor: float = 1.0";
constexpr const char* kPostscale = "postscale_factor: float = 1.0";
constexpr const char* kRoot = "root_rank: int";

void register_pair() {
  define("HorovodEnqueueAllreduce", {kNumber, kOp, kPrescale, kPostscale, kScope, kSet, kName}, {"tensor: T"},
         {"ticket: int64"}, scalar_output);
  define("HorovodWait", {kNumberList, kCount}, {"tickets: N * int64"}, {"sums: T"}, unknown_shapes);
  define("HorovodProbe", {}, {}, {"can_defer: int32"}, scalar_output);
  kernels("HorovodEnqueueAllreduce", [](const char* device) {
    return tf.TF_NewKernelBuilder("HorovodEnqueueAllreduce", device, create_enqueue, compute_enqueue, delete_enqueue);
  });
  kernels("HorovodWait", [](const char* device) {
    return tf.TF_NewKernelBuilder("HorovodWait", device, nullptr, compute_wait, nullptr);
  });
  kernels("HorovodProbe", [](const char* device) {
    return tf.TF_NewAsyncKernelBuilder("HorovodProbe", device, nullptr, compute_probe, nullptr);
  });
}

void register_all() {
  define("HorovodAllreduce", {kNumber, kOp, kPrescale, kPostscale, kScope, kSet, kName}, {"tensor: T"}, {"sum: T"},
         same_shapes);
  define("HorovodGroupedAllreduce", {kNumber, kCount, kOp, kPrescale, kPostscale, kScope, kSet, kName},
         {"tensors: N * T"}, {"sum: N * T"}, same_shapes);
  define("HorovodAllreduceEach", {kNumberList, kOp, kPrescale, kPostscale, kScope, kSet, kNames}, {"tensors: T"},
         {"sums: T"}, same_shapes);
  define("HorovodAllgather", {kAny, kScope, kSet, kName}, {"tensor: T"}, {"output: T"}, unknown_rows);
  define("HorovodGroupedAllgather", {kAny, kCount, kScope, kSet, kName}, {"tensors: N * T"}, {"outputs: N * T"},
         unknown_rows);
  define("HorovodBroadcast", {kAny, kRoot, kScope, kSet, kName}, {"tensor: T"}, {"output: T"}, same_shapes);
  define("HorovodGroupedBroadcast", {kAnyList, kRoot, kScope, kSet, kName}, {"tensors: T"}, {"outputs: T"},
         same_shapes);
  define("HorovodAlltoall", {kAny, kScope, kSet, kName}, {"tensor: T", "splits: int32"},
         {"output: T", "received_splits: int32"}, alltoall_shapes);
  define("HorovodReducescatter", {kNumber, kOp, kPrescale, kPostscale, kScope, kSet, kName}, {"tensor: T"},
         {"output: T"}, scattered_rows);
  define("HorovodGroupedReducescatter", {kNumber, kCount, kOp, kPrescale, kPostscale, kScope, kSet, kName},
         {"tensors: N * T"}, {"outputs: N * T"}, grouped_scattered_rows);
  define("HorovodJoin", {}, {}, {"last_rank: int32"}, scalar_output);

  collective<HVD_ALLREDUCE>("HorovodAllreduce");
  collective<HVD_ALLREDUCE, Form::kGroup>("HorovodGroupedAllreduce");
  collective<HVD_ALLREDUCE, Form::kApart>("HorovodAllreduceEach");
  collective<HVD_ALLGATHER>("HorovodAllgather");
  collective<HVD_ALLGATHER, Form::kGroup>("HorovodGroupedAllgather");
  collective<HVD_BROADCAST>("HorovodBroadcast");
  collective<HVD_BROADCAST, Form::kGroup>("HorovodGroupedBroadcast");
  collective<HVD_ALLTOALL>("HorovodAlltoall");
  collective<HVD_REDUCESCATTER>("HorovodReducescatter");
  collective<HVD_REDUCESCATTER, Form::kGroup>("HorovodGroupedReducescatter");
  collective<HVD_JOIN>("HorovodJoin");

  register_pair();

  query("HorovodRank", create_query<Query::kRank>, false);
  query("HorovodSize", create_query<Query::kSize>, true);
  query("HorovodLocalRank", create_query<Query::kLocalRank>, false);
  query("HorovodLocalSize", create_query<Query::kLocalSize>, false);
  query("HorovodProcessSetIncluded", create_query<Query::kIncluded>, true);
}

__attribute__((constructor)) void on_load() {
  std::string missing = load_api();
  if (missing.empty()) register_all();
  else *problem() = "this TensorFlow lacks " + missing;
}

}  // namespace
}  // namespace horovod::tensorflow

// What went wrong while registering; empty when nothing did.
extern "C" HVD_API const char* horovod_tensorflow_problem() { return horovod::tensorflow::problem()->c_str(); }
extern "C" HVD_API int32_t horovod_tensorflow_can_defer() { return horovod::tensorflow::last_done_was_movable(); }
extern "C" HVD_API void horovod_tensorflow_refuse_to_defer(int32_t refuse) {
  horovod::tensorflow::refuse_to_move(refuse != 0);
}
