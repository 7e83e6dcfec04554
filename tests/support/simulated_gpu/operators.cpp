// Computes what the simulated GPU's kernels do not: each operator of LibTorch's CUDA part is called on a CPU instead,
// on the host memory that holds the GPU's contents, in stream order, and again whenever a graph that contains it is
// launched. The allocator, streams, events, graphs and random generators are still LibTorch's own for CUDA.
//
// Opened by the runtime (runtime_memory.cpp) when LibTorch first allocates, because the last kernel that is registered
// for an operator is the one that is called.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/Copy.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "memory.h"
#include "operator_arguments.h"
#include "operator_random.h"
#include "settings.h"
#include "stream.h"

namespace simulated {

namespace {

using c10::OperatorHandle;

struct ByName {
  bool operator()(const c10::OperatorName& a, const c10::OperatorName& b) const {
    return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
  }
};

// CUDA's own kernels.
std::map<c10::OperatorName, c10::SafeKernelFunction, ByName>& originals() {
  static auto* all = new std::map<c10::OperatorName, c10::SafeKernelFunction, ByName>;
  return *all;
}

void drop(Stack& stack, size_t count) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
}

// Settings::only_small: of all of an operator's tensors together.
constexpr int64_t kSmall = 64;

bool is_small(const Stack& arguments) {
  int64_t numbers = 0;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) { numbers += tensor.numel(); });
  }
  return numbers > 0 && numbers <= kSmall;
}

// Values read from a computation that was not done, for example a loss, are finite.
void make_finite(const Stack& results) {
  for (const auto& result : results) {
    for_each_tensor(result, [](const at::Tensor& tensor) {
      if (!tensor.is_cuda() || tensor.numel() == 0 || tensor.numel() > kSmall) return;
      enqueue(at::cuda::getCurrentCUDAStream(),
              {"set to 1", 0, [here = on_cpu(tensor)] { at::Tensor(here).fill_(1); }});
    });
  }
}

// native_dropout has no argument for the generator.
Stack drop_out(const Stack& arguments, const at::Generator& generator) {
  const at::Tensor input = arguments[0].toTensor();
  const bool trains = arguments[2].isNone() || arguments[2].toBool();
  const double kept = trains ? 1 - arguments[1].toDouble() : 1;
  const at::Tensor mask = at::empty_like(input, at::kBool).bernoulli_(kept, generator);
  return {kept > 0 ? input * mask / kept : at::zeros_like(input), mask};
}

// CUDA's fused kernels, all but Adagrad's, round the learning rate to the precision in which they compute.
void round_rate(const c10::FunctionSchema& schema, Stack& arguments) {
  const std::string& name = schema.name();
  if (name.rfind("aten::_fused_adam", 0) != 0 && name.rfind("aten::_fused_sgd", 0) != 0) return;
  if (arguments[0].toTensorVector()[0].scalar_type() == at::kDouble) return;
  const auto index = schema.argumentIndexWithName("lr");
  if (!index || !arguments[static_cast<size_t>(*index)].isDouble()) return;
  c10::IValue& rate = arguments[static_cast<size_t>(*index)];
  rate = static_cast<double>(static_cast<float>(rate.toDouble()));
}

struct Call {
  OperatorHandle op;
  Random random;

  // Takes arguments on the CPU, and returns results there.
  Stack operator()(Stack arguments) const {
    const c10::InferenceMode no_versions;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    if (const auto generator = random.generator()) {
      if (!random.argument()) return drop_out(arguments, *generator);
      arguments[*random.argument()] = *generator;
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
    return arguments;
  }
};

// Results that are a written argument are that argument.
void return_written(const c10::FunctionSchema& schema, const Stack& given, Stack& stack) {
  for (const auto& result : schema.returns()) {
    const auto* place = result.alias_info();
    TORCH_CHECK(place != nullptr, "simulated GPU: ", schema.name(),
                " returns a new tensor in addition to a written one");
    for (size_t i = 0; i < given.size(); ++i) {
      const auto* written = schema.arguments()[i].alias_info();
      if (written == nullptr || written->beforeSets() != place->beforeSets()) continue;
      stack.push_back(given[i]);
      break;
    }
  }
}

// Out arguments that are still empty take their results' sizes.
void resize_empty(const c10::FunctionSchema& schema, const Stack& given, const Call& call) {
  std::vector<size_t> empty;
  for (size_t i = 0; i < given.size(); ++i) {
    if (schema.arguments()[i].is_out() && given[i].isTensor() && given[i].toTensor().numel() == 0) empty.push_back(i);
  }
  if (empty.empty()) return;
  const Stack results = call(copies_on_cpu(given));
  for (size_t k = 0; k < empty.size(); ++k) given[empty[k]].toTensor().resize_(results[k].toTensor().sizes());
}

// A result's size is known once it has been computed. While a graph is captured nothing is: then it is computed from
// copies, and from zeros if its inputs in memory, such as an index, are not arguments.
Stack sized_results(const Stack& given, const Call& call, cudaStream_t stream) {
  if (!is_capturing(stream)) {
    synchronize(Stream::of(stream), "a result");
    return call(on_cpu(given));
  }
  try {
    return call(copies_on_cpu(given));
  } catch (const c10::Error&) {
    const Stack zeros = copies_on_cpu(given);
    for (const auto& argument : zeros) {
      for_each_tensor(argument, [](const at::Tensor& tensor) { at::Tensor(tensor).zero_(); });
    }
    return call(zeros);
  }
}

void compute(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  Stack given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  round_rate(schema, given);
  const bool writes = writes_arguments(schema);
  if (settings().only_small && !is_small(given)) {
    originals().find(op.operator_name())->second.callBoxed(op, keys, stack);
    const auto results = static_cast<std::ptrdiff_t>(schema.returns().size());
    if (!writes) make_finite({stack->end() - results, stack->end()});
    return;
  }
  drop(*stack, count);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const Call call{op, Random::of(schema, given)};
  if (writes) {
    resize_empty(schema, given, call);
    enqueue(stream, {schema.name(), settings().kernel_us, [call, here = on_cpu(given)] { (void)call(here); }});
    return return_written(schema, given, *stack);
  }
  const Stack results = sized_results(given, call, stream);
  const Stack made = on_device(results);
  const Stack places = on_cpu(made);  // not owned: a graph does not keep its memory either
  const bool repeats = is_capturing(stream);
  enqueue(stream, {schema.name(), settings().kernel_us,
                   [=, here = on_cpu(given)] { fill(places, repeats ? call(here) : results); }});
  stack->insert(stack->end(), made.begin(), made.end());
}

// Copies to and from the host are CUDA's own, which the runtime implements.
void copy(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const size_t size = stack->size();
  const at::Tensor to = (*stack)[size - 3].toTensor(), from = (*stack)[size - 2].toTensor();
  const bool is_left_out = settings().only_small && (to.numel() == 0 || to.numel() > kSmall / 2);
  if (to.is_cuda() && from.is_cuda() && !is_left_out) return compute(op, keys, stack);
  const bool non_blocking = stack->back().toBool();
  drop(*stack, 3);
  at::native::copy_(const_cast<at::Tensor&>(to), from, non_blocking);
  stack->emplace_back(to);
}

// Fused attention has no kernel on a CPU that takes the same arguments.
void choose_math(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  drop(*stack, op.schema().arguments().size());
  stack->emplace_back(int64_t{0});  // at::SDPBackend::math
}

// What allocates, reads a number or makes a view is CUDA's.
bool is_left_to_cuda(const OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::empty",     "aten::empty_strided",       "aten::resize_",
                                              "aten::set_",      "aten::is_pinned",           "aten::_pin_memory",
                                              "aten::is_set_to", "aten::_local_scalar_dense", "aten::record_stream"};
  if (names.count(op.operator_name().name) == 1 || !op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return true;
  const auto& results = op.schema().returns();
  return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// LibTorch warns of kernels that are replaced.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class Registered {
 public:
  Registered() {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (name.name.rfind("aten::", 0) != 0 || !op) continue;
      if (name.name == "aten::copy_") {
        add<&copy>(name);
      } else if (name.name == "aten::_fused_sdp_choice") {
        if (!settings().only_small) add<&choose_math>(name);
      } else if (!is_left_to_cuda(*op)) {
        originals().emplace(name, op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA));
        add<&compute>(name);
      }
    }
    at::globalContext().setUserEnabledCuDNN(false);  // it is not simulated
    at::globalContext().setSDPUseCuDNN(false);
  }

 private:
  template <c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* function>
  void add(const c10::OperatorName& name) {
    registered_.push_back(c10::Dispatcher::singleton().registerImpl(
        name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<function>(), std::nullopt, nullptr,
        "simulated GPU"));
  }

  std::vector<c10::RegistrationHandleRAII> registered_;
};

[[maybe_unused]] const auto* const registered = new Registered;  // until the end of the process

}  // namespace

}  // namespace simulated
