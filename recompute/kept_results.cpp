#include "levin/recompute/kept_results.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/generator_state.h"
#include "levin/libtorch/operator_values.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/recompute/surroundings.h"

namespace levin {

namespace {

struct ThreadResults {
  KeptResults* results = nullptr;
  KeptResults::Mode mode = KeptResults::Mode::keep;
  bool observed = false;  // a scope of this thread has an observer
};

ThreadResults& thread_results() {
  thread_local ThreadResults current;
  return current;
}

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

c10::IValue alias_of_value(const c10::IValue& value, bool own_version) {
  if (!is_defined_tensor(value)) return value;
  return own_version ? alias_with_new_version(value.toTensor()) : alias_of(value.toTensor());
}

c10::IValue copy_of(const c10::IValue& value) {
  if (!is_defined_tensor(value)) return value;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return value.toTensor().clone();
}

bool shares_memory(const c10::IValue& value, const at::Tensor& tensor) {
  return is_defined_tensor(value) && tensor.defined() && tensor.has_storage() && value.toTensor().is_alias_of(tensor);
}

int64_t version_of(const c10::IValue& value) {
  return is_defined_tensor(value) ? static_cast<int64_t>(value.toTensor()._version()) : 0;
}

enum class Kind { other, product, change, unsafe_view };

// LibTorch's operators by what is to be done at them; those not in the map are other.
const std::unordered_map<c10::OperatorHandle, Kind>& kinds() {
  static const auto known = [] {
    std::unordered_map<c10::OperatorHandle, Kind> made;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op && name.getNamespace() == "aten" && op->schema().is_mutable()) made.emplace(*op, Kind::change);
    }
    auto add = [&](const std::string& name, Kind kind) {
      made.insert_or_assign(dispatcher.findSchemaOrThrow(("aten::" + name).c_str(), ""), kind);
    };
    for (const std::string& name : KeptResults::operators()) add(name, Kind::product);
    add("_unsafe_view", Kind::unsafe_view);
    return made;
  }();
  return known;
}

// Of the thread's innermost scope.
class ProductObserver final : public OperatorObserver {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override {
    const ThreadResults current = thread_results();
    const auto found = kinds().find(op);
    const Kind kind = current.results == nullptr || found == kinds().end() ? Kind::other : found->second;
    if (kind == Kind::product) return run_product(op, keys, stack, current);
    if (kind == Kind::unsafe_view) return run_unsafe_view(op, keys, stack, *current.results);
    if (kind == Kind::change) before_change(op, stack, current);
    run_below(op, keys, stack);
  }

 private:
  void run_product(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack,
                   const ThreadResults& current) {
    if (current.mode == KeptResults::Mode::give) {
      std::vector<c10::IValue> results = current.results->give(op);
      torch::jit::drop(stack, op.schema().arguments().size());
      for (c10::IValue& result : results) stack.push_back(std::move(result));
      return;
    }
    run_below(op, keys, stack);
    const auto results = torch::jit::last(stack, op.schema().returns().size());
    current.results->keep(op, std::vector<c10::IValue>(results.begin(), results.end()));
  }

  static void before_change(const c10::OperatorHandle& op, const OperatorStack& stack, const ThreadResults& current) {
    const auto& arguments = op.schema().arguments();
    for (size_t k = 0; k < arguments.size(); ++k) {
      if (!is_written(arguments[k])) continue;
      const c10::IValue& changed = torch::jit::peek(stack, k, arguments.size());
      if (changed.isTensor()) current.results->before_change(op, changed.toTensor(), current.mode);
      if (!changed.isTensorList()) continue;
      for (const at::Tensor& tensor : changed.toTensorVector()) {
        current.results->before_change(op, tensor, current.mode);
      }
    }
  }

  // matmul returns its product through this: the same memory with its own version counter.
  void run_unsafe_view(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack,
                       const KeptResults& results) {
    const at::Tensor product = torch::jit::peek(stack, 0, op.schema().arguments().size()).toTensor();
    run_below(op, keys, stack);
    if (!results.holds(product)) return;
    const at::Tensor view = torch::jit::peek(stack, 0, 1).toTensor();
    share_version(view, product);
  }
};

}  // namespace

const std::vector<std::string>& KeptResults::operators() {
  static const std::vector<std::string> names = {"mm",
                                                 "addmm",
                                                 "_addmm_activation",
                                                 "mv",
                                                 "addmv",
                                                 "bmm",
                                                 "baddbmm",
                                                 "addbmm",
                                                 "convolution",
                                                 "_scaled_dot_product_flash_attention",
                                                 "_scaled_dot_product_flash_attention_for_cpu",
                                                 "_scaled_dot_product_efficient_attention",
                                                 "_scaled_dot_product_cudnn_attention"};
  return names;
}

void KeptResults::keep(const c10::OperatorHandle& op, const std::vector<c10::IValue>& results) {
  Result result{op.schema().name()};
  for (const c10::IValue& value : results) {
    result.values.push_back(alias_of_value(value, /*own_version=*/false));
    result.versions.push_back(version_of(value));
  }
  // Without drawing again, the following operators would get other random numbers.
  if (is_random(op) && results[0].isTensor()) {
    result.generator = generator_of(results[0].toTensor().device()).value_or(at::detail::getDefaultCPUGenerator());
    result.generator_state = generator_state(result.generator);
  }
  results_.push_back(std::move(result));
}

std::vector<c10::IValue> KeptResults::give(const c10::OperatorHandle& op) {
  const std::string name = op.schema().name();
  if (next_ >= results_.size() || results_[next_].op != name) {
    throw Error("recompute: " + segment_ + " computes something else the second time: " + name + " where it was " +
                (next_ < results_.size() ? results_[next_].op : "no matrix product") +
                ". With keep: matmul a segment must run the same operators again; leave keep out, or leave the "
                "branch out of the segment.");
  }
  Result& result = results_[next_++];
  std::vector<c10::IValue> values;
  for (size_t k = 0; k < result.values.size(); ++k) {
    if (version_of(result.values[k]) != result.versions[k]) {
      throw Error("recompute: the result of " + name + " that " + segment_ +
                  " keeps was changed in place after it. With keep: matmul use the operation that is not in place "
                  "(relu instead of relu_), or leave keep out.");
    }
    values.push_back(result.is_changed ? copy_of(result.values[k])
                                       : alias_of_value(result.values[k], /*own_version=*/true));
  }
  if (result.generator_state.defined()) set_generator_state(result.generator, result.generator_state);
  return values;
}

bool KeptResults::holds(const at::Tensor& tensor) const {
  return std::any_of(results_.begin(), results_.end(), [&](const Result& result) {
    return std::any_of(result.values.begin(), result.values.end(),
                       [&](const c10::IValue& value) { return shares_memory(value, tensor); });
  });
}

void KeptResults::before_change(const c10::OperatorHandle& op, const at::Tensor& tensor, Mode mode) {
  for (Result& result : results_) {
    for (size_t k = 0; k < result.values.size(); ++k) {
      if (!shares_memory(result.values[k], tensor)) continue;
      if (mode == Mode::give) {
        throw Error("recompute: " + segment_ + " computes something else the second time: " + op.schema().name() +
                    " changes a result in place that was not changed. With keep: matmul a segment must run the same "
                    "operators again; leave keep out.");
      }
      if (version_of(result.values[k]) != result.versions[k]) continue;  // too late: give() reports it
      result.values[k] = copy_of(result.values[k]);
      result.versions[k] = version_of(result.values[k]);
      result.is_changed = true;
    }
  }
}

KeptResults::Scope::Scope(KeptResults* results, Mode mode)
    : outer_(thread_results().results), outer_mode_(thread_results().mode) {
  if (results != nullptr && !thread_results().observed) observer_ = std::make_unique<ProductObserver>();
  thread_results() = {results, mode, thread_results().observed || observer_ != nullptr};
  if (results != nullptr) results->next_ = 0;
}

KeptResults::Scope::~Scope() {
  thread_results() = {outer_, outer_mode_, thread_results().observed && observer_ == nullptr};
}

}  // namespace levin
