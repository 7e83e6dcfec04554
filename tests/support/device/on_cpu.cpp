#include "support/device/on_cpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <optional>

#include "support/device/generators.h"
#include "support/device/memory.h"
#include "support/device/streams.h"
#include "support/device/test_device.h"

namespace levin::test {

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kTestDeviceType;
}

namespace {

// Resizable as a tensor of the CPU is; what it frees then is not this memory.
c10::Storage cpu_storage(const c10::Storage& own) {
  void* address = DeviceMemory::instance().for_kernels(own.data());
  return {c10::Storage::use_byte_size_t(), own.nbytes(), c10::DataPtr(address, c10::Device(c10::kCPU)),
          c10::GetCPUAllocator(), /*resizable=*/true};
}

c10::Storage device_storage(const c10::Storage& from, c10::Device device) {
  c10::DataPtr memory = DeviceMemory::instance().allocate(from.nbytes(), device);
  if (from.nbytes() > 0) {
    std::memcpy(DeviceMemory::instance().for_kernels(memory.get()), from.data(), from.nbytes());
  }
  return {c10::Storage::use_byte_size_t(), from.nbytes(), std::move(memory), &device_allocator(), /*resizable=*/true};
}

void take_geometry(const at::Tensor& to, const at::Tensor& from) {
  auto* impl = to.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
}

at::Tensor tensor_on(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  take_geometry(made, like);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

}  // namespace

at::Tensor unowned(const at::Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       c10::DataPtr(const_cast<void*>(tensor.storage().data()), tensor.device()), &device_allocator(),
                       /*resizable=*/false);
  return tensor_on(std::move(storage), c10::DispatchKey::PrivateUse1, tensor);
}

at::Tensor OnCpu::alias(const at::Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  TORCH_CHECK(seen_.empty() || tensor.device() == device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", device(), " and ",
              tensor.device(), "!");
  for (const Seen& seen : seen_) {
    if (seen.own.is_same(tensor)) return seen.alias;
  }
  auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
  if (!storage) storage = cpu_storage(tensor.storage());
  seen_.push_back({tensor, tensor_on(storage, c10::DispatchKey::CPU, tensor)});
  return seen_.back().alias;
}

at::Tensor OnCpu::on_device(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const Seen& seen : seen_) {
    if (seen.alias.is_same(result)) return seen.own;
  }
  for (const Seen& seen : seen_) {
    if (!seen.alias.storage().is_alias_of(result.storage())) continue;
    // Also in inference mode a view of an ordinary tensor is an ordinary tensor.
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(seen.own.storage()),
                                                               seen.own.key_set(), result.dtype());
    take_geometry(view, result);
    return view;
  }
  return tensor_on(device_storage(result.storage(), device()), c10::DispatchKey::PrivateUse1, result);
}

void OnCpu::update_arguments() {
  for (const Seen& seen : seen_) {
    const c10::Storage& own = seen.own.storage();
    const void* before = DeviceMemory::instance().for_kernels(own.data());
    if (seen.alias.storage().data() != before) {
      c10::Storage grown = device_storage(seen.alias.storage(), seen.own.device());
      own.unsafeGetStorageImpl()->set_nbytes(grown.nbytes());
      own.set_data_ptr_noswap(grown.set_data_ptr(c10::DataPtr(nullptr, seen.own.device())));
    }
    const bool reshaped = seen.alias.sizes() != seen.own.sizes() || seen.alias.strides() != seen.own.strides();
    if (reshaped) take_geometry(seen.own, seen.alias);
  }
}

c10::Device OnCpu::device() const {
  return seen_.empty() ? current_device() : seen_.front().own.device();
}

void replace_tensors(torch::jit::Stack& stack, size_t count, const std::function<at::Tensor(const at::Tensor&)>& by) {
  for (size_t k = stack.size() - count; k < stack.size(); ++k) {
    c10::IValue& value = stack[k];
    if (value.isTensor()) {
      value = by(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(by(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(by(*tensor)) : std::nullopt);
      }
      value = std::move(list);
    }
  }
}

namespace {

// Some kernels draw from the CPU's generator without being given one: they get the device's numbers too.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(c10::DeviceIndex index)
      : cpu_(at::detail::getDefaultCPUGenerator()), own_(device_generator(index)), before_(cpu_.get_state()) {
    cpu_.set_state(own_.get_state());
  }
  ~DeviceNumbers() {
    own_.set_state(cpu_.get_state());
    cpu_.set_state(before_);
  }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

 private:
  at::Generator cpu_, own_;
  at::Tensor before_;
};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t arguments = schema.arguments().size();
  OnCpu cpu;
  replace_tensors(stack, arguments, [&](const at::Tensor& tensor) { return cpu.alias(tensor); });
  bool takes_generator = false;
  for (size_t k = 0; k < arguments; ++k) {
    c10::IValue& value = stack[stack.size() - arguments + k];
    if (value.isDevice() && value.toDevice().type() == kTestDeviceType) value = c10::Device(c10::kCPU);
    const auto& type = *schema.arguments()[k].type();
    if (type.repr_str() != "Generator?") continue;
    takes_generator = true;
    if (value.isNone()) value = device_generator(cpu.device().index());
  }
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::optional<DeviceNumbers> numbers;
    if (op.hasTag(at::Tag::nondeterministic_seeded) && !takes_generator) numbers.emplace(cpu.device().index());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }
  cpu.update_arguments();
  replace_tensors(stack, schema.returns().size(), [&](const at::Tensor& result) { return cpu.on_device(result); });
}

}  // namespace levin::test
