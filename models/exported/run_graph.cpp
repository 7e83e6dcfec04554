#include "levin/models/exported/run_graph.h"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/operator_values.h"
#include "levin/models/exported/bound_graph.h"

namespace levin::exported {

namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

double real_of(const IValue& value) {
  if (value.isDouble()) return value.toDouble();
  return value.isBool() ? static_cast<double>(value.toBool()) : static_cast<double>(value.toInt());
}

int64_t integer_of(const IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

bool true_of(const IValue& value) {
  return value.isBool() ? value.toBool() : (value.isInt() ? value.toInt() != 0 : value.toDouble() != 0);
}

int64_t in_range(bool overflows, int64_t value) {
  if (overflows) throw Error("a size of the exported program does not fit into 64 bits.");
  return value;
}

// Whole numbers give whole numbers, as in Python; with a double among them, doubles.
template <class Whole, class Real>
IValue arithmetic(const Arguments& arguments, Whole whole, Real real) {
  const IValue &a = arguments[0], &b = arguments[1];
  if (a.isDouble() || b.isDouble()) return IValue(real(real_of(a), real_of(b)));
  return IValue(whole(integer_of(a), integer_of(b)));
}

IValue add(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    int64_t sum = 0;
    const bool overflows = __builtin_add_overflow(a, b, &sum);
    return in_range(overflows, sum);
  };
  return arithmetic(arguments, whole, [](double a, double b) { return a + b; });
}

IValue sub(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    int64_t difference = 0;
    const bool overflows = __builtin_sub_overflow(a, b, &difference);
    return in_range(overflows, difference);
  };
  return arithmetic(arguments, whole, [](double a, double b) { return a - b; });
}

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  const bool overflows = __builtin_mul_overflow(a, b, &result);
  return in_range(overflows, result);
}

IValue mul(const Arguments& arguments) {
  return arithmetic(arguments, product, [](double a, double b) { return a * b; });
}

void refuse_zero(bool is_zero) {
  if (is_zero) throw Error("the exported program divides a size by zero.");
}

int64_t floor_quotient(int64_t a, int64_t b) {
  refuse_zero(b == 0);
  if (b == -1) return product(a, -1);
  return a / b - static_cast<int64_t>(a % b != 0 && (a % b < 0) != (b < 0));
}

IValue floordiv(const Arguments& arguments) {
  return arithmetic(arguments, floor_quotient, [](double a, double b) {
    refuse_zero(b == 0);
    return std::floor(a / b);
  });
}

IValue mod(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    refuse_zero(b == 0);
    const int64_t rest = b == -1 ? 0 : a % b;  // the quotient by -1 may not fit
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  };
  return arithmetic(arguments, whole, [](double a, double b) {
    refuse_zero(b == 0);
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  });
}

IValue truediv(const Arguments& arguments) {
  refuse_zero(real_of(arguments[1]) == 0);
  return real_of(arguments[0]) / real_of(arguments[1]);
}

IValue pow(const Arguments& arguments) {
  const IValue &base = arguments[0], &exponent = arguments[1];
  if (base.isDouble() || exponent.isDouble() || integer_of(exponent) < 0) {
    return std::pow(real_of(base), real_of(exponent));
  }
  int64_t result = 1, factor = integer_of(base);
  for (int64_t left = integer_of(exponent); left > 0; left >>= 1) {
    if ((left & 1) != 0) result = product(result, factor);
    if (left > 1) factor = product(factor, factor);
  }
  return result;
}

IValue neg(const Arguments& arguments) {
  if (arguments[0].isDouble()) return -arguments[0].toDouble();
  return product(integer_of(arguments[0]), -1);
}

template <class Compare>
IValue compare(const Arguments& arguments, Compare holds) {
  const IValue &a = arguments[0], &b = arguments[1];
  if (a.isDouble() || b.isDouble()) return IValue(static_cast<bool>(holds(real_of(a), real_of(b))));
  return IValue(static_cast<bool>(holds(integer_of(a), integer_of(b))));
}

// On bools "and" and "or", on whole numbers bitwise.
template <class Combine>
IValue bitwise(const Arguments& arguments, Combine combine) {
  const int64_t result = combine(integer_of(arguments[0]), integer_of(arguments[1]));
  if (arguments[0].isBool() && arguments[1].isBool()) return IValue(result != 0);
  return IValue(result);
}

IValue shift(const Arguments& arguments, bool left) {
  const int64_t value = integer_of(arguments[0]), by = integer_of(arguments[1]);
  if (by < 0 || by > 62) throw Error("the exported program shifts a size by " + std::to_string(by) + " bits.");
  return left ? product(value, int64_t{1} << by) : value >> by;
}

IValue whole_part(const IValue& value, double (*round)(double)) {
  if (!value.isDouble()) return integer_of(value);
  const double rounded = round(value.toDouble());
  return in_range(!(std::abs(rounded) < 9.2e18), static_cast<int64_t>(std::abs(rounded) < 9.2e18 ? rounded : 0));
}

template <class Compare>
IValue chosen(const Arguments& arguments, Compare first_wins) {
  return first_wins(real_of(arguments[0]), real_of(arguments[1])) ? arguments[0] : arguments[1];
}

using Table = std::map<std::pair<std::string, size_t>, NumberOperator>;

const Table& table() {
  using A = const Arguments&;
  static const Table all = {
      {{"_operator.add", 2}, add},
      {{"_operator.sub", 2}, sub},
      {{"_operator.mul", 2}, mul},
      {{"_operator.floordiv", 2}, floordiv},
      {{"_operator.mod", 2}, mod},
      {{"_operator.truediv", 2}, truediv},
      {{"_operator.pow", 2}, pow},
      {{"_operator.neg", 1}, neg},
      {{"_operator.pos", 1}, [](A a) { return a[0]; }},
      {{"_operator.eq", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x == y; }); }},
      {{"_operator.ne", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x != y; }); }},
      {{"_operator.lt", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x < y; }); }},
      {{"_operator.le", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x <= y; }); }},
      {{"_operator.gt", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x > y; }); }},
      {{"_operator.ge", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x >= y; }); }},
      {{"_operator.and_", 2}, [](A a) { return bitwise(a, [](int64_t x, int64_t y) { return x & y; }); }},
      {{"_operator.or_", 2}, [](A a) { return bitwise(a, [](int64_t x, int64_t y) { return x | y; }); }},
      {{"_operator.lshift", 2}, [](A a) { return shift(a, true); }},
      {{"_operator.rshift", 2}, [](A a) { return shift(a, false); }},
      {{"torch.sym_not", 1}, [](A a) { return IValue(!true_of(a[0])); }},
      {{"torch.sym_int", 1}, [](A a) { return whole_part(a[0], std::trunc); }},
      {{"math.trunc", 1}, [](A a) { return whole_part(a[0], std::trunc); }},
      {{"torch.sym_float", 1}, [](A a) { return IValue(real_of(a[0])); }},
      {{"torch._sym_sqrt", 1}, [](A a) { return IValue(std::sqrt(real_of(a[0]))); }},
      {{"torch.sym_sqrt", 1}, [](A a) { return IValue(std::sqrt(real_of(a[0]))); }},
      {{"torch.sym_max", 2}, [](A a) { return chosen(a, [](double x, double y) { return x >= y; }); }},
      {{"torch.sym_min", 2}, [](A a) { return chosen(a, [](double x, double y) { return x <= y; }); }},
      {{"torch.sym_ite", 3}, [](A a) { return true_of(a[0]) ? a[1] : a[2]; }},
  };
  return all;
}

std::string shape_text(const InputShape& shape) {
  std::string text = "(";
  for (size_t k = 0; k < shape.sizes.size(); ++k) {
    text += k == 0 ? "" : ", ";
    const std::string symbol = shape.symbols[k].empty() ? "?" : shape.symbols[k];
    text += shape.sizes[k] >= 0 ? std::to_string(shape.sizes[k]) : cut_text(symbol);
  }
  return text + ")";
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t k = 0; k < tensor.dim(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(tensor.size(k));
  return text + ")";
}

// float32 and bfloat16 are of one kind: a run's precision may change the one into the other.
int kind_of(c10::ScalarType dtype) {
  if (dtype == c10::kBool) return 0;
  return c10::isIntegralType(dtype, /*includeBool=*/false) ? 1 : (c10::isComplexType(dtype) ? 3 : 2);
}

bool sizes_fit(const InputShape& shape, const at::Tensor& tensor, std::map<std::string, int64_t>& sizes) {
  if (tensor.dim() != static_cast<int64_t>(shape.sizes.size())) return false;
  for (size_t k = 0; k < shape.sizes.size(); ++k) {
    const int64_t size = tensor.size(static_cast<int64_t>(k));
    if (shape.sizes[k] >= 0 && shape.sizes[k] != size) return false;
    if (shape.sizes[k] >= 0 || shape.symbols[k].empty()) continue;
    if (sizes.emplace(shape.symbols[k], size).first->second != size) return false;
  }
  return true;
}

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
  wrap_number(tensor);
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
      case As::unchanged: return checked(filled, values_[filled.value]);
      case As::double_: return double_of(values_[filled.value]);
      case As::tensor: return tensor_of(values_[filled.value]);
      case As::tensors: return list_of<at::Tensor>(filled, [](const IValue& value) { return value.toTensor(); });
      case As::optional_tensors:
        return list_of<std::optional<at::Tensor>>(filled,
                                                  [](const IValue& value) { return value.toOptional<at::Tensor>(); });
      case As::ints:
        return list_of<int64_t>(filled, [&](const IValue& value) { return checked(filled, value).toInt(); });
      case As::doubles: return list_of<double>(filled, double_of);
      case As::bools: return list_of<bool>(filled, [](const IValue& value) { return value.toBool(); });
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
    if (call.memory_check != nullptr) call.memory_check({call.op->schema(), stack_});
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

NumberOperator number_operator(const std::string& target, size_t arguments) {
  const auto found = table().find({target, arguments});
  return found == table().end() ? nullptr : found->second;
}

void check_inputs(const std::vector<InputSpec>& inputs, const std::vector<SizeRange>& ranges,
                  const std::vector<at::Tensor>& given, const std::string& path) {
  size_t next = 0;
  std::map<std::string, int64_t> sizes;
  for (const InputSpec& input : inputs) {
    if (input.kind != InputSpec::Kind::user) continue;
    const at::Tensor& tensor = given.at(next++);
    if (!tensor.defined()) throw Error(path + ": input \"" + input.name + "\" is an undefined tensor.");
    if (kind_of(tensor.scalar_type()) != kind_of(input.shape.dtype)) {
      throw Error(path + ": input \"" + input.name + "\" is " + c10::toString(tensor.scalar_type()) +
                  ", and the program was exported for " + c10::toString(input.shape.dtype) + ".");
    }
    if (sizes_fit(input.shape, tensor, sizes)) continue;
    throw Error(path + ": input \"" + input.name + "\" has the shape " + shape_text(tensor) +
                ", and the program was exported for " + shape_text(input.shape) +
                ". Export it with dynamic_shapes where a size should vary.");
  }
  for (const SizeRange& range : ranges) {
    const auto found = sizes.find(range.symbol);
    // As PyTorch: a least size of 2 comes from the export, which never looks at 0 and 1, and not from the model.
    if (found == sizes.end() || ((range.least <= 2 || found->second >= range.least) && found->second <= range.most))
      continue;
    throw Error(path + ": a size is " + std::to_string(found->second) + ", and the program was exported for sizes " +
                cut_text(range.symbol) + " from " + std::to_string(range.least) + " to " + std::to_string(range.most) +
                ".");
  }
}

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
