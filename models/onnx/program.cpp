#include "levin/models/onnx/program.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/remainder.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/models/onnx/tracer.h"

namespace levin::onnx {

namespace {

constexpr const char* kRemedy =
    " A graph computes the same for all sizes: export one with fixed sizes (--fixed_batch, no --dynamic_length), or "
    "another method.";

std::string point_text(const TracePoint& point) {
  const std::string samples = std::to_string(point.batch) + " samples";
  return point.length == 0 ? samples : samples + " of length " + std::to_string(point.length);
}

std::vector<int64_t> whole_numbers(const c10::IValue& value) {
  if (value.isInt()) return {value.toInt()};
  return value.isIntList() ? value.toIntVector() : std::vector<int64_t>{};
}

bool is_same_plain(const c10::IValue& one, const c10::IValue& other) {
  if (one.isDouble() && other.isDouble()) return one.toDouble() == other.toDouble();
  if (one.isBool() && other.isBool()) return one.toBool() == other.toBool();
  if (one.isString() && other.isString()) return one.toStringRef() == other.toStringRef();
  if (one.isDoubleList() && other.isDoubleList()) return one.toDoubleVector() == other.toDoubleVector();
  return one.tagKind() == other.tagKind();
}

class Merge {
 public:
  Merge(const std::vector<Trace>& traces, const std::vector<TracePoint>& points) : traces_(traces), points_(points) {}

  Program merged() {
    for (size_t k = 0; k < first().calls.size(); ++k) add_call(k);
    for (size_t t = 1; t < traces_.size(); ++t) {
      if (traces_[t].calls.size() > first().calls.size()) fail(t, first().calls.size());
    }
    for (size_t k = 0; k < first().values.size(); ++k) add_value(k);
    drop_varying_weights();
    program_.inputs = first().inputs;
    program_.outputs = first().outputs;
    return std::move(program_);
  }

 private:
  [[nodiscard]] const Trace& first() const { return traces_.front(); }

  // The traces of points_[0] and points_[t] call different operators as their k-th.
  [[noreturn]] void fail(size_t t, size_t k) const {
    const auto called = [&](size_t trace) {
      const auto& calls = traces_[trace].calls;
      return k < calls.size() ? "aten::" + calls[k].name : "nothing more";
    };
    const std::string what = points_[0].batch == points_[t].batch ? "the length" : "the batch size";
    if (called(0) == called(t)) {
      throw Error(what + " decides with which tensors, or with how many numbers, the model calls " + called(0) +
                  ": it differs between " + point_text(points_[0]) + " and " + point_text(points_[t]) + "." + kRemedy);
    }
    throw Error(what + " decides what the model calls: " + called(0) + " with " + point_text(points_[0]) + ", " +
                called(t) + " with " + point_text(points_[t]) + "." + kRemedy);
  }

  void add_value(size_t k) {
    const TracedValue& traced = first().values[k];
    ProgramValue value{.kind = traced.kind,
                       .name = traced.name,
                       .tensor = traced.tensor,
                       .dtype = traced.dtype,
                       .sizes = {},
                       .is_unset = traced.is_unset,
                       .is_number = traced.is_number,
                       .is_weight = traced.is_weight};
    for (const Trace& other : traces_) {
      value.is_unset = value.is_unset && other.values[k].is_unset;
      if (!traced.is_weight && !bitwise_equal(traced.tensor, other.values[k].tensor)) value.tensor = at::Tensor();
    }
    if (traced.kind == TracedValue::Kind::constant && !value.tensor.defined()) value.number = number_of(k);
    for (size_t d = 0; d < traced.sizes.size(); ++d) {
      std::vector<int64_t> sizes;
      for (const Trace& trace : traces_) {
        const auto& all = trace.values[k].sizes;
        sizes.push_back(all.size() == traced.sizes.size() ? all[d] : -1);
      }
      const auto size = fit_batch_number(points_, sizes);
      if (!size) value.problem = size_problem(sizes, d);
      value.sizes.push_back(size.value_or(BatchNumber{0, sizes[0]}));
    }
    program_.values.push_back(std::move(value));
  }

  // A whole number that C++ computes with, such as the number of samples.
  [[nodiscard]] std::optional<BatchNumber> number_of(size_t value) const {
    std::vector<int64_t> numbers;
    for (const Trace& trace : traces_) {
      const at::Tensor& tensor = trace.values[value].tensor;
      if (!tensor.defined() || tensor.dim() != 0 || tensor.is_complex()) return std::nullopt;
      numbers.push_back(tensor.item<int64_t>());
      if (tensor.item<double>() != static_cast<double>(numbers.back())) return std::nullopt;
    }
    return fit_batch_number(points_, numbers);
  }

  // What is computed of weights is the same in all traces, of which only the first has its numbers, where all that the
  // call reads is.
  void drop_varying_weights() {
    for (const ProgramCall& call : program_.calls) {
      bool varies = false;
      for (const ProgramArgument& argument : call.arguments) {
        varies = varies || argument.differs ||
                 !std::all_of(argument.numbers.begin(), argument.numbers.end(),
                              [](const BatchNumber& number) { return number.is_fixed(); });
      }
      each_read_value(
          call, [&](int64_t id) { varies = varies || !program_.values[static_cast<size_t>(id)].tensor.defined(); });
      for (const int64_t id : call.results) {
        ProgramValue& value = program_.values[static_cast<size_t>(id)];
        if (varies && value.is_weight) value.tensor = at::Tensor();
      }
    }
  }

  [[nodiscard]] std::string size_problem(const std::vector<int64_t>& sizes, size_t dim) const {
    size_t other = 1;
    while (other + 1 < sizes.size() && sizes[other] == sizes[0]) ++other;
    return "has " + std::to_string(sizes[0]) + " elements along dimension " + std::to_string(dim) + " with " +
           point_text(points_[0]) + " and " + std::to_string(sizes[other]) + " with " + point_text(points_[other]) +
           ", which is not in proportion";
  }

  ProgramArgument argument_of(size_t call, size_t position) const {
    const TracedArgument& traced = first().calls[call].arguments[position];
    ProgramArgument argument{.kind = traced.kind, .plain = traced.plain, .numbers = {}, .values = traced.values};
    const size_t count = whole_numbers(traced.plain).size();
    for (size_t n = 0; n < count; ++n) {
      std::vector<int64_t> seen;
      for (const Trace& trace : traces_) seen.push_back(whole_numbers(trace.calls[call].arguments[position].plain)[n]);
      const auto number = fit_batch_number(points_, seen);
      argument.numbers.push_back(number.value_or(BatchNumber{0, seen[0]}));
      argument.differs = argument.differs || !number;
    }
    for (const Trace& trace : traces_) {
      if (count == 0 && !is_same_plain(traced.plain, trace.calls[call].arguments[position].plain))
        argument.differs = true;
    }
    return argument;
  }

  [[nodiscard]] bool is_same_call(const TracedCall& one, const TracedCall& other) const {
    if (one.op.operator_name() != other.op.operator_name() || one.results != other.results) return false;
    for (size_t k = 0; k < one.arguments.size(); ++k) {
      const TracedArgument &a = one.arguments[k], &b = other.arguments[k];
      if (a.values != b.values || whole_numbers(a.plain).size() != whole_numbers(b.plain).size()) return false;
    }
    return true;
  }

  void add_call(size_t k) {
    const TracedCall& call = first().calls[k];
    for (size_t t = 1; t < traces_.size(); ++t) {
      const auto& others = traces_[t].calls;
      if (k >= others.size() || !is_same_call(call, others[k])) fail(t, k);
    }
    ProgramCall merged{.op = call.op, .name = call.name, .arguments = {}, .results = call.results};
    for (size_t p = 0; p < call.arguments.size(); ++p) merged.arguments.push_back(argument_of(k, p));
    program_.calls.push_back(std::move(merged));
  }

  const std::vector<Trace>& traces_;
  const std::vector<TracePoint>& points_;
  Program program_ = {};
};

// So many samples of the example, from its first again where it has fewer, and cut to the length.
NamedTensors at_point(const NamedTensors& example, const TracePoint& point) {
  NamedTensors inputs;
  const at::Tensor& first = example.at(0).second;
  const at::Tensor rows = at::arange(point.batch, at::kLong).remainder(first.size(0));
  for (const auto& [name, tensor] : example) {
    at::Tensor input = tensor.index_select(0, rows);
    const bool is_cut = point.length != 0 && input.dim() > 1 && input.size(1) == first.size(1);
    inputs.emplace_back(name, is_cut ? input.slice(1, 0, point.length).contiguous() : input);
  }
  return inputs;
}

Trace trace_once(const TraceRequest& request, const NamedTensors& inputs, bool keeps_weights) {
  OverwrittenParameters overwritten;
  Trace trace = [&] {
    Tracer tracer(request.parameters, overwritten, request.is_whole, keeps_weights);
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : inputs) {
      tracer.add_input(name, tensor);
      tensors.push_back(tensor);
    }
    return tracer.take(request.forward(tensors));
  }();
  for (TracedValue& value : trace.values) {  // parameters get their numbers back
    if (!value.is_weight || value.kind != TracedValue::Kind::result || !value.tensor.defined()) continue;
    if (overwritten.holds(value.tensor)) value.tensor = value.tensor.clone();
  }
  return trace;
}

}  // namespace

Program merge_traces(const std::vector<Trace>& traces, const std::vector<TracePoint>& points) {
  return Merge(traces, points).merged();
}

Program trace_program(const TraceRequest& request) {
  const c10::InferenceMode no_autograd;
  const at::Tensor& first = request.inputs.at(0).second;
  std::vector<TracePoint> points{{first.size(0), 0}};
  if (request.dynamic_batch) points = trace_points(request.dynamic_length ? first.size(1) : 0);
  std::vector<Trace> traces;
  traces.reserve(points.size());
  for (const TracePoint& point : points) {
    traces.push_back(trace_once(request, at_point(request.inputs, point), /*keeps_weights=*/traces.empty()));
  }
  return merge_traces(traces, points);
}

}  // namespace levin::onnx
