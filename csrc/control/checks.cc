// SPDX-License-Identifier: Apache-2.0
#include "control/checks.h"

#include <sstream>

#include "horovod/core.h"
#include "util/dtype.h"

namespace hvd {
namespace {

bool exact_shape(int kind) { return kind == HVD_ALLREDUCE || kind == HVD_BROADCAST || kind == HVD_REDUCESCATTER; }

bool scaled(int kind) { return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER; }

std::string title(const char* upper) {
  std::string text(upper);
  for (size_t i = 1; i < text.size(); ++i) text[i] = static_cast<char>(text[i] - 'A' + 'a');
  return text;
}

// The first way in which two descriptions differ, in the documented words.
std::string difference(const Description& a, const Description& b) {
  std::ostringstream out;
  if (a.dtype != b.dtype) {
    out << "Mismatched data types: One rank had type " << dtype_name(a.dtype) << ", but another rank had type "
        << dtype_name(b.dtype) << ".";
  } else if (std::string(a.kind_text()) != b.kind_text()) {
    out << "Mismatched operations: One rank did an " << a.kind_text() << ", but another rank did an " << b.kind_text()
        << ".";
  } else if (a.kind == kAddProcessSet && a.shape != b.shape) {
    out << "Attempted to register process set with mismatching "
        << (a.shape.size() != b.shape.size() ? "size" : "values") << " on different ranks: one rank asked for "
        << shape_text(a.shape) << ", another for " << shape_text(b.shape) << ".";
  } else if (exact_shape(a.kind) && a.shape != b.shape) {
    out << "Mismatched " << a.kind_text() << " tensor shapes: One rank sent a tensor of shape " << shape_text(a.shape)
        << ", but another rank sent a tensor of shape " << shape_text(b.shape) << ".";
  } else if (scaled(a.kind) && (a.prescale != b.prescale || a.postscale != b.postscale)) {
    out << "Mismatched prescale and/or postscale factors: One rank sent factors (" << a.prescale << ", " << a.postscale
        << "), but another rank sent factors (" << b.prescale << ", " << b.postscale << ").";
  } else if (scaled(a.kind) && a.reduce_op != b.reduce_op) {
    out << "Mismatched reduction operation: One rank sent reduction op " << a.reduce_op
        << ", but another rank sent reduction op " << b.reduce_op << ".";
  } else if (a.shape.size() != b.shape.size()) {
    out << "Mismatched " << a.kind_text() << " tensor shapes: One rank sent a tensor of rank " << a.shape.size()
        << ", but another rank sent a tensor of rank " << b.shape.size() << ".";
  } else if (a.shape != b.shape) {
    size_t d = 0;
    while (a.shape[d] == b.shape[d]) ++d;
    out << "Mismatched " << a.kind_text() << " tensor shapes: One rank sent a tensor with dimension " << d
        << " equal to " << a.shape[d] << ", but another rank sent a tensor with dimension " << d << " equal to "
        << b.shape[d] << ".";
  } else if (a.kind == kRemoveProcessSet && a.root != b.root) {
    out << "Attempted to remove different process sets on different ranks: one rank asked for " << a.root
        << ", another for " << b.root << ".";
  } else if (a.root != b.root) {
    out << "Mismatched " << a.kind_text() << " root ranks: One rank specified root rank " << a.root
        << ", but another rank specified root rank " << b.root << ".";
  } else if ((a.device < 0) != (b.device < 0)) {
    out << "Mismatched " << a.kind_text() << " CPU/GPU device selection: One rank specified device "
        << (a.device < 0 ? "CPU" : "GPU") << ", but another rank specified device " << (b.device < 0 ? "CPU" : "GPU")
        << ".";
  } else if (a.wire != b.wire) {
    auto wire = [](const Description& d) { return d.wire ? dtype_name(d.wire) : "no"; };
    out << "Mismatched compression: One rank asked for " << wire(a) << " compression, but another rank asked for "
        << wire(b) << " compression.";
  } else if (a.group != b.group || a.group_size != b.group_size) {
    auto group = [](const Description& d) {
      return d.group ? "in a group of " + std::to_string(d.group_size) : std::string("outside of any group");
    };
    out << "Mismatched groups: One rank submitted the tensor " << group(a) << ", but another rank submitted it "
        << group(b) << " (or in a group of other tensors).";
  }
  return out.str();
}

// Who sent what, e.g. "rank 0 on a: ALLREDUCE float32 [2, 3] Sum; ranks 1, 2 (first on b): ...".
std::string who_sent_what(const std::vector<Variant>& variants, const Topology& topology) {
  static const char* ops[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  std::ostringstream out;
  for (size_t i = 0; i < variants.size() && i < 4; ++i) {
    const Variant& v = variants[i];
    out << (i ? "; " : "");
    for (size_t k = 0; k < v.shares.size() && k < 4; ++k) out << (k ? ", " : "") << topology.describe(v.shares[k].rank);
    if (v.shares.size() > 4) out << " and " << v.shares.size() - 4 << " more";
    const Description& d = v.description;
    out << " sent " << d.kind_text() << " " << dtype_name(d.dtype) << " " << shape_text(d.shape);
    if (scaled(d.kind) && d.reduce_op >= 0 && d.reduce_op < 6)
      out << " op " << ops[d.reduce_op] << " scales (" << d.prescale << ", " << d.postscale << ")";
    if (d.kind == HVD_BROADCAST) out << " root " << d.root;
    if (d.device >= 0) out << " on a GPU";
    if (d.group) out << " in a group of " << d.group_size;
  }
  return out.str();
}

std::string lone_problem(const Variant& v, bool joined) {
  const Description& d = v.description;
  if (joined && d.kind == HVD_ALLGATHER)
    return "Allgather is not supported with Join at this time. Specify sparse_to_dense=True if using "
           "DistributedOptimizer";
  if (joined && (d.kind == HVD_ALLTOALL || d.kind == HVD_BROADCAST || d.kind == HVD_REDUCESCATTER))
    return title(d.kind_text()) + " is not supported with Join at this time.";
  bool needs_rows = d.rows_vary() || d.kind == HVD_REDUCESCATTER;
  if (needs_rows && d.shape.empty())
    return std::string("Process-set rank zero tried to ") + d.kind_text() + " a rank-zero tensor.";
  if (d.rows_vary() && payload_bytes(d, v.shares) > kMaxBytes)
    return title(d.kind_text()) + " of more bytes than any memory holds.";
  return "";
}

}  // namespace

std::string check_variants(const std::vector<Variant>& variants, bool joined, const Topology& topology) {
  std::string problem;
  for (size_t i = 1; i < variants.size() && problem.empty(); ++i)
    problem = difference(variants[0].description, variants[i].description);
  if (problem.empty()) problem = lone_problem(variants[0], joined);
  if (problem.empty()) return "";
  return problem + " Tensor: " + variants[0].description.name + ". " + who_sent_what(variants, topology) +
         ". Make every rank submit the same operation under one name, then go on: other tensors are unaffected.";
}

}  // namespace hvd
