#include "levin/models/exported/run_graph.h"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

#include "levin/core/error.h"

namespace levin::exported {

namespace {

using c10::IValue;
using As = FilledArgument::As;

// As Python's @torch.autocast(enabled=False) within the model.
class AutocastOff {
 public:
  explicit AutocastOff(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    for (size_t k = 0; k < kDevices.size(); ++k) {
      was_on_[k] = at::autocast::is_autocast_enabled(kDevices[k]);
      at::autocast::set_autocast_enabled(kDevices[k], false);
    }
  }
  ~AutocastOff() {
    if (!wanted_) return;
    for (size_t k = 0; k < kDevices.size(); ++k) at::autocast::set_autocast_enabled(kDevices[k], was_on_[k]);
  }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  static constexpr std::array<at::DeviceType, 2> kDevices = {at::kCPU, at::kCUDA};
  bool wanted_;
  std::array<bool, 2> was_on_ = {};
};

double double_of(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

IValue tensor_of(const IValue& value) {
  if (!value.isScalar()) return value;
  at::Tensor tensor = at::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue value_of(const Argument& argument, const Values& values) {
  if (argument.kind != Argument::Kind::list) {
    return argument.kind == Argument::Kind::value ? values[argument.value] : argument.constant;
  }
  std::vector<at::Tensor> tensors;
  for (const Argument& item : argument.items) {
    const IValue value = value_of(item, values);
    tensors.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  }
  return tensors;
}

class Run {
 public:
  Run(Values& values, const RunOptions& options) : options_(options), values_(values) {}

  void run(const BoundGraph& graph, size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      const BoundCall& call = graph.calls[k];
      try {
        run(call);
      } catch (c10::Error& error) {
        error.add_context("in " + call.name + " of the exported program");
        throw;
      } catch (const std::exception& error) {  // LibTorch has others too: a number that a type cannot hold
        throw Error("in " + call.name + ": " + error.what());
      }
    }
  }

 private:
  static const IValue& checked(const FilledArgument& filled, const IValue& value) {
    if (!value.isInt() || filled.range.holds(value.toInt())) return value;
    throw Error("a size is " + std::to_string(value.toInt()) + ", which is not within " +
                std::to_string(filled.range.least) + " to " + std::to_string(filled.range.most) + ".");
  }

  template <class T, class Read>
  [[nodiscard]] IValue list_of(const FilledArgument& filled, Read read) const {
    c10::List<T> list;
    list.reserve(filled.items.size());
    for (const Argument& item : filled.items) {
      list.push_back(read(item.kind == Argument::Kind::value ? values_[item.value] : item.constant));
    }
    return list;
  }

  [[nodiscard]] IValue filled_value(const FilledArgument& filled) const {
    switch (filled.as) {
      case As::it_is: return checked(filled, values_[filled.value]);
      case As::real: return double_of(values_[filled.value]);
      case As::tensor: return tensor_of(values_[filled.value]);
      case As::tensors: return list_of<at::Tensor>(filled, [](const IValue& value) { return value.toTensor(); });
      case As::optional_tensors:
        return list_of<std::optional<at::Tensor>>(filled,
                                                  [](const IValue& value) { return value.toOptional<at::Tensor>(); });
      case As::wholes:
        return list_of<int64_t>(filled, [&](const IValue& value) { return checked(filled, value).toInt(); });
      case As::reals: return list_of<double>(filled, double_of);
      case As::truths: return list_of<bool>(filled, [](const IValue& value) { return value.toBool(); });
    }
    return {};
  }

  void run(const BoundCall& call) {
    if (call.kind == BoundCall::Kind::nothing) return release(call);
    if (call.counts_batches && !options_.is_training(call)) {
      values_[call.outputs.at(0).value] = values_[call.filled[0].value];
      return release(call);
    }
    stack_.assign(call.arguments.begin(), call.arguments.end());
    for (const FilledArgument& filled : call.filled) stack_[filled.position] = filled_value(filled);
    for (const size_t position : call.devices) stack_[position] = options_.device;
    if (call.mode) {
      const bool trains = options_.is_training(call);
      stack_[call.mode->position] = trains ? call.mode->when_training : call.mode->when_evaluating;
    }
    if (call.check) call.check(stack_);
    switch (call.kind) {
      case BoundCall::Kind::op: run_operator(call); break;
      case BoundCall::Kind::number: stack_ = {call.number(stack_)}; break;
      case BoundCall::Kind::size: stack_ = {IValue(stack_.at(0).toTensor().size(stack_.at(1).toInt()))}; break;
      case BoundCall::Kind::graph: run_inner(call); break;
      case BoundCall::Kind::nothing: break;
    }
    for (size_t k = 0; k < std::min(call.outputs.size(), stack_.size()); ++k)
      keep(call.outputs[k], std::move(stack_[k]));
    stack_.clear();
    release(call);
  }

  void run_operator(const BoundCall& call) {
    if (call.memory_check != nullptr) call.memory_check(call.op->schema(), stack_);
    call.op->callBoxed(&stack_);
    if (call.is_uninitialized) stack_.at(0).toTensor().zero_();
  }

  void run_inner(const BoundCall& call) {
    const bool is_autocast = stack_[0].toBool(), enabled = stack_[1].toBool();
    const AutocastOff autocast(is_autocast && !enabled);
    const c10::AutoGradMode grad(is_autocast ? c10::GradMode::is_enabled() : enabled);
    stack_ = run_graph(*call.graph, Values(stack_.begin() + 2, stack_.end()), options_);
  }

  void keep(const Argument& output, IValue result) {
    if (output.kind == Argument::Kind::value) {
      values_[output.value] = std::move(result);
    } else if (output.kind == Argument::Kind::list) {
      const auto tensors = result.toTensorVector();
      if (tensors.size() < output.items.size()) {
        throw Error("it gave " + std::to_string(tensors.size()) + " tensors where the export had " +
                    std::to_string(output.items.size()) + "; export it with the sizes that it gets now.");
      }
      for (size_t k = 0; k < output.items.size(); ++k) values_[output.items[k].value] = tensors[k];
    }
  }

  void release(const BoundCall& call) {
    for (const size_t value : call.released) values_[value] = IValue();
  }

  const RunOptions& options_;
  Values& values_;
  Values stack_ = {};
};

}  // namespace

void run_calls(const BoundGraph& graph, size_t begin, size_t end, Values& values, const RunOptions& options) {
  Run(values, options).run(graph, begin, end);
}

Values values_of(const BoundGraph& graph, std::vector<c10::IValue> inputs) {
  Values values(graph.values);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (graph.inputs[k].kind == Argument::Kind::value) values[graph.inputs[k].value] = std::move(inputs[k]);
  }
  return values;
}

std::vector<c10::IValue> outputs_of(const BoundGraph& graph, const Values& values) {
  std::vector<c10::IValue> outputs;
  for (const Argument& output : graph.outputs) outputs.push_back(value_of(output, values));
  return outputs;
}

std::vector<c10::IValue> run_graph(const BoundGraph& graph, std::vector<c10::IValue> inputs,
                                   const RunOptions& options) {
  Values values = values_of(graph, std::move(inputs));
  run_calls(graph, 0, graph.calls.size(), values, options);
  return outputs_of(graph, values);
}

}  // namespace levin::exported
