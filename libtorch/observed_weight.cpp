#include "levin/libtorch/observed_weight.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution_ops.h>
#include <c10/core/TensorImpl.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "levin/libtorch/borrowed_keys.h"
#include "levin/libtorch/tensor_memory.h"

namespace levin {

namespace {

constexpr c10::DispatchKey kObservedKey = kObservedWeightKey;

using Stack = torch::jit::Stack;

// On a transposed view of a weight: whose it is.
struct ViewMark final : c10::BackendMeta {
  ViewMark(std::weak_ptr<WeightObserver> of, bool transposed) : observer(std::move(of)), is_transposed(transposed) {}
  std::weak_ptr<WeightObserver> observer;
  bool is_transposed;  // false: twice
};

// A module's parameter keeps its TensorImpl for life, while its memory and metadata may be replaced at every step (dp).
struct Observers {
  std::shared_mutex mutex;
  std::unordered_map<const c10::TensorImpl*, std::weak_ptr<WeightObserver>> by_weight;
};

// Never destroyed: a module of static life may outlast it.
Observers& observers() {
  static auto* all = new Observers;
  return *all;
}

struct Use {
  std::shared_ptr<WeightObserver> observer = nullptr;
  bool is_transposed = false;  // as against the module's parameter
};

std::optional<Use> find_use(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_observed(tensor)) return std::nullopt;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (const auto* mark = dynamic_cast<const ViewMark*>(impl->get_backend_meta())) {
    if (auto observer = mark->observer.lock()) return Use{std::move(observer), mark->is_transposed};
    return std::nullopt;
  }
  Observers& all = observers();
  const std::shared_lock lock(all.mutex);
  const auto found = all.by_weight.find(impl);
  if (found == all.by_weight.end()) return std::nullopt;
  if (auto observer = found->second.lock()) return Use{std::move(observer), false};
  return std::nullopt;
}

std::optional<Use> find_use(const c10::IValue& value) {
  return value.isTensor() ? find_use(value.toTensor()) : std::nullopt;
}

at::Tensor alias_with_keys(const at::Tensor& tensor, c10::DispatchKeySet keys) {
  return tensor_over(tensor.storage(), keys, tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                     tensor.storage_offset());
}

void run_observed_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kObservedKey), stack);
}

// ---- products ----------------------------------------------------------------------------------------------------

// Where an operator's arguments are; a linear one computes with a matrix (out, in), or (in, out).
struct ProductForm {
  size_t input;
  size_t weight;
  std::optional<size_t> bias = std::nullopt;
  bool takes_in_out = false;
  WeightUse use = WeightUse::linear;
  std::optional<size_t> groups = std::nullopt;
  std::optional<size_t> transposed = std::nullopt;
};

using Sizes = c10::SymIntArrayRef;  // product_form counts a convolution's arguments
static_assert(std::is_same_v<at::_ops::convolution::schema,
                             at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, Sizes,
                                        Sizes, Sizes, bool, Sizes, c10::SymInt)>,
              "This LibTorch has changed the arguments of a convolution: adapt libtorch/observed_weight.cpp.");

std::optional<ProductForm> product_form(const std::string& name) {
  if (name == "aten::linear") return ProductForm{.input = 0, .weight = 1, .bias = 2};
  if (name == "aten::addmm") return ProductForm{.input = 1, .weight = 2, .bias = 0, .takes_in_out = true};
  if (name == "aten::matmul" || name == "aten::mm") return ProductForm{.input = 0, .weight = 1, .takes_in_out = true};
  if (name == "aten::embedding") return ProductForm{.input = 1, .weight = 0, .use = WeightUse::embedding};
  ProductForm convolution{.input = 0, .weight = 1, .bias = 2, .use = WeightUse::convolution, .groups = 6};
  if (name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d") return convolution;
  if (name != "aten::convolution" && name != "aten::_convolution") return std::nullopt;
  convolution.transposed = 6;
  convolution.groups = 8;
  return convolution;
}

// Whether the operator computes what the observer's layer does, with its weight as the module holds it.
bool fits(const ProductForm& form, const Use& use, c10::ArrayRef<c10::IValue> values) {
  if (use.observer->use() != form.use) return false;
  if (form.use == WeightUse::linear) return (use.observer->is_in_out() != use.is_transposed) == form.takes_in_out;
  return !use.is_transposed && !(form.transposed && values[*form.transposed].toBool());
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Autograd must find a weight that is trained: it then keeps its key, which its operators skip on this thread, and
// through which they pass in backward.
at::Tensor plain_weight(const at::Tensor& weight) {
  return weight.requires_grad() ? weight : without_observed_key(weight);
}

at::Tensor product_of(const c10::OperatorHandle& op, const ProductForm& form, const Use& use, Stack arguments) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kObservedKey);
  const at::Tensor weight = plain_weight(arguments[form.weight].toTensor());
  arguments[form.weight] = weight;
  WeightProduct call;
  call.input = arguments[form.input].toTensor();
  call.bias = form.bias ? tensor_or_none(arguments[*form.bias]) : at::Tensor();
  call.weight = use.is_transposed ? weight.t() : weight;
  call.unchanged = [&op, arguments] {
    Stack again = arguments;
    op.callBoxed(again);
    return again.front().toTensor();
  };
  call.with = [&op, &form, arguments](const at::Tensor& input, const at::Tensor& other) {
    Stack again = arguments;
    again[form.input] = input;
    again[form.weight] = other;
    if (form.bias) again[*form.bias] = c10::IValue();
    if (form.groups) again[*form.groups] = int64_t{1};
    op.callBoxed(again);
    return again.front().toTensor();
  };
  if (form.groups) call.groups = arguments[*form.groups].toInt();
  return use.observer->product(call);
}

// addmm(bias, input, weight, beta, alpha) with factors: beta * bias + alpha * product.
at::Tensor scaled_product(const c10::OperatorHandle& op, const ProductForm& form, const Use& use, Stack arguments,
                          const at::Scalar& beta, const at::Scalar& alpha) {
  const at::Tensor bias = arguments[0].toTensor();
  arguments[0] = bias.new_zeros({1});
  arguments[3] = at::Scalar(1);
  arguments[4] = at::Scalar(1);
  return bias.mul(beta).add(product_of(op, form, use, std::move(arguments)), alpha);
}

// Whether the operator was a layer's product, whose result is then on the stack.
bool run_product(const c10::OperatorHandle& op, Stack* stack) {
  const auto form = product_form(op.schema().name());
  if (!form) return false;
  const size_t count = op.schema().arguments().size();
  const auto values = torch::jit::last(*stack, count);
  const auto use = find_use(values[form->weight]);
  if (!use || !fits(*form, *use, values)) return false;
  Stack arguments(values.begin(), values.end());
  const bool is_addmm = form->bias == 0u;
  const at::Scalar beta = is_addmm ? arguments[3].toScalar() : at::Scalar(1);
  const at::Scalar alpha = is_addmm ? arguments[4].toScalar() : at::Scalar(1);
  at::Tensor result = beta.equal(1) && alpha.equal(1)
                          ? product_of(op, *form, *use, std::move(arguments))
                          : scaled_product(op, *form, *use, std::move(arguments), beta, alpha);
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(result));
  return true;
}

// ---- other operators -----------------------------------------------------------------------------------------------

// Whether a view of a matrix exchanges its dimensions.
bool is_transpose(const std::string& name, const at::Tensor& of, const at::Tensor& view) {
  if (name != "aten::t" && name != "aten::numpy_T" && name != "aten::transpose" && name != "aten::permute") {
    return false;
  }
  return of.dim() == 2 && view.dim() == 2 && view.stride(0) == of.stride(1) && view.stride(1) == of.stride(0) &&
         view.size(0) == of.size(1) && view.size(1) == of.size(0);
}

void mark_view(const at::Tensor& of, const at::Tensor& view, const std::string& name) {
  if (!is_transpose(name, of, view) || view.unsafeGetTensorImpl() == of.unsafeGetTensorImpl()) return;
  const auto use = find_use(of);
  if (!use) return;
  view.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<ViewMark>(use->observer, !use->is_transposed));
}

// Module::to of a module that holds quantized weights.
void keep_dtype(const c10::OperatorHandle& op, const at::Tensor& weight, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  auto values = stack->end() - static_cast<std::ptrdiff_t>(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "dtype" && !values[static_cast<std::ptrdiff_t>(i)].isNone()) {
      values[static_cast<std::ptrdiff_t>(i)] = weight.scalar_type();
    }
  }
}

void keep_key(const at::Tensor& of, Stack* stack) {
  const at::Tensor result = stack->back().toTensor();
  const bool is_same = result.unsafeGetTensorImpl() == of.unsafeGetTensorImpl();
  if (!is_same && !result.requires_grad()) stack->back() = with_observed_key(result);
}

void call_observed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (run_product(op, stack)) return;
  const std::string& name = op.schema().name();
  const auto values = torch::jit::last(*stack, op.schema().arguments().size());
  for (const c10::IValue& value : values) {
    if (const auto use = find_use(value)) use->observer->check_other_use(name);
  }
  if (values.empty() || !values[0].isTensor()) return run_observed_below(op, keys, stack);
  const at::Tensor first = values[0].toTensor();
  const bool is_to = name == "aten::to" && is_observed(first);
  if (is_to) {
    if (const auto use = find_use(first); use && use->observer->keeps_dtype()) keep_dtype(op, first, stack);
  }
  run_observed_below(op, keys, stack);
  if (stack->empty() || !stack->back().isTensor()) return;
  if (is_to) return keep_key(first, stack);
  mark_view(first, stack->back().toTensor(), name);
}

// Registered at the first use, for the rest of the process.
void start_observing() {
  static const torch::Library library = register_fallback<&call_observed>(kObservedKey);
}

}  // namespace

void observe_weight(const at::Tensor& weight, const std::shared_ptr<WeightObserver>& observer) {
  start_observing();
  {
    Observers& all = observers();
    const std::unique_lock lock(all.mutex);
    all.by_weight[weight.unsafeGetTensorImpl()] = observer;
  }
  if (!is_observed(weight)) set_tensor_data(weight, with_observed_key(weight));
}

void end_observation(const at::Tensor& weight) {
  Observers& all = observers();
  const std::unique_lock lock(all.mutex);
  all.by_weight.erase(weight.unsafeGetTensorImpl());
}

void forget_weight(const at::Tensor& weight) {
  end_observation(weight);
  if (is_observed(weight)) set_tensor_data(weight, without_observed_key(weight));
}

bool is_observed(const at::Tensor& tensor) {
  return tensor.key_set().has(kObservedKey);
}

at::Tensor with_observed_key(const at::Tensor& tensor) {
  return alias_with_keys(tensor, tensor.key_set().add(kObservedKey));
}

at::Tensor without_observed_key(const at::Tensor& tensor) {
  return alias_with_keys(tensor, tensor.key_set().remove(kObservedKey));
}

at::Tensor observed_like(const at::Tensor& weight, const at::Tensor& value) {
  return is_observed(weight) ? with_observed_key(value) : value;
}

}  // namespace levin
