// The operators of the test device: almost all are the CPU's, on the device's memory.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "support/device/memory.h"
#include "support/device/on_cpu.h"
#include "support/device/recorder.h"
#include "support/device/streams.h"
#include "support/device/test_device.h"

namespace levin::test {

namespace {

struct Counts {
  std::atomic<int64_t> to_device = 0, to_host = 0, numbers_read = 0, late_copies = 0, late_reads = 0, operators = 0;
  std::atomic<const char*> last_read = "";
} counts;

// Kernels whose results have sizes that depend on values: a GPU's host waits for them.
constexpr std::array<std::string_view, 6> kSizedByValues = {"aten::nonzero",    "aten::masked_select",
                                                            "aten::_unique2",   "aten::bincount",
                                                            "aten::unique_dim", "aten::unique_consecutive"};
// Their indices may be on the host.
constexpr std::array<std::string_view, 3> kHostIndices = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"};

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void note_read(const c10::OperatorHandle& op) {
  refuse_while_recording("it reads a number from the device");
  ++counts.numbers_read;
  counts.last_read = op.schema().name().c_str();
}

bool reads_number(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    const auto kind = result.type()->kind();
    const bool tensors =
        kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType || kind == c10::TypeKind::OptionalType;
    if (!tensors) return true;
  }
  return is_among(kSizedByValues, op.schema().name());
}

// A number of the host is a scalar to a kernel; anything larger belongs on the device.
void check_devices(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (is_among(kHostIndices, op.schema().name())) return;
  const char* name = op.schema().name().c_str();
  replace_tensors(stack, op.schema().arguments().size(), [&](const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || tensor.device().type() == kTestDeviceType || tensor.dim() == 0,
                "Expected all tensors to be on the same device, but found at least two devices, testdev:",
                current_device().index(), " and ", tensor.device(), "! (", name, ")");
    return tensor;
  });
}

// Boolean indices are positions that only the device knows.
bool has_boolean_index(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!is_among(kHostIndices, op.schema().name())) return false;
  const c10::IValue& indices = stack[stack.size() - op.schema().arguments().size() + 1];
  if (!indices.isOptionalTensorList()) return false;
  for (const std::optional<at::Tensor>& index : indices.toOptionalTensorVector()) {
    if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
      return true;
  }
  return false;
}

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  ++counts.operators;
  check_devices(op, *stack);
  if (reads_number(op) || has_boolean_index(op, *stack)) note_read(op);
  const RecordedCall call(op, *stack);
  run_on_cpu(op, *stack);
  call.done(*stack);
}

c10::Device device_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : current_device();
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_generic(size, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_strided_generic(size, stride, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

void copy_now(const at::Tensor& from, const at::Tensor& to) {
  OnCpu source, target;  // may be on different devices
  target.alias(to).copy_(source.alias(from));
}

void poison(const at::Tensor& tensor) {
  OnCpu cpu;
  at::Tensor alias = cpu.alias(tensor);
  if (at::isFloatingType(alias.scalar_type())) {
    alias.fill_(NAN);
  } else {
    alias.fill_(-1);
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below;
  if (is_ours(from) && !is_ours(to)) {
    refuse_while_recording("it copies to the host");
    if (non_blocking && is_pinned(to.const_data_ptr())) {
      ++counts.late_reads;
      const at::Tensor now = at::empty_like(to);  // later work of the stream may change the source
      copy_now(from, now);
      to.fill_(at::isFloatingType(to.scalar_type()) ? NAN : -1);
      run_late(from.device(), [now, to] { to.copy_(now); });
      return to;
    }
    ++counts.to_host;
    finish_stream(from.device());
    copy_now(from, to);
    return to;
  }
  if (!is_ours(from)) {
    const bool is_pinned_memory = is_pinned(from.const_data_ptr());
    if (!is_pinned_memory) refuse_while_recording("it copies from memory of the host that is not page-locked");
    ++counts.to_device;
    // What has gaps is copied within the host first, to memory that is not page-locked.
    const bool is_late = non_blocking && is_pinned_memory && from.is_non_overlapping_and_dense();
    if (is_late && current_stream(to.device()) != 0) {
      ++counts.late_copies;
      poison(to);
      run_late(to.device(), [from, to] { copy_now(from, to); });
      return to;
    }
    finish_stream(to.device());  // a copy to `from` comes before this one
  }
  record_copy(from, to);
  copy_now(from, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.numel() == 0) to.resize_(from.sizes());
  return copy_from(from, to, /*non_blocking=*/false);
}

void record_stream(at::Tensor& /*self*/, c10::Stream /*stream*/) {}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

// LibTorch takes these for backends that are not its own. A call of its own, so that it is recorded as one operator.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto bias_for_replays = bias ? std::optional(for_replays(*bias)) : std::nullopt;
  return run_recorded([=, input = for_replays(input), weight = for_replays(weight), bias = bias_for_replays,
                       stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                       output_padding = output_padding.vec()](OnCpu& cpu) -> std::vector<at::Tensor> {
    const auto own_bias = bias && bias->defined() ? std::optional(cpu.alias(*bias)) : std::nullopt;
    return {at::convolution(cpu.alias(input), cpu.alias(weight), own_bias, stride, padding, dilation, transposed,
                            output_padding, groups)};
  })[0];
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                                                    const at::Tensor& weight, c10::IntArrayRef stride,
                                                                    c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                                                    bool transposed, c10::IntArrayRef output_padding,
                                                                    int64_t groups, std::array<bool, 3> wanted) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto results = run_recorded([=, grad = for_replays(grad), input = for_replays(input), weight = for_replays(weight),
                               stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                               output_padding = output_padding.vec()](OnCpu& cpu) -> std::vector<at::Tensor> {
    const std::vector<int64_t> bias_sizes{transposed ? weight.size(1) * groups : weight.size(0)};
    auto [x, w, b] = at::convolution_backward(cpu.alias(grad), cpu.alias(input), cpu.alias(weight), bias_sizes, stride,
                                              padding, dilation, transposed, output_padding, groups, wanted);
    return {x, w, b};
  });
  return {results[0], results[1], results[2]};
}

}  // namespace

DeviceCounts device_counts() {
  return {.to_device = counts.to_device,
          .to_host = counts.to_host,
          .numbers_read = counts.numbers_read,
          .late_copies = counts.late_copies,
          .late_reads = counts.late_reads,
          .recorded = recordings_made(),
          .replayed = recordings_replayed(),
          .operators = counts.operators};
}

void reset_device_counts() {
  counts.to_device = counts.to_host = counts.numbers_read = counts.late_copies = counts.late_reads = counts.operators =
      0;
  counts.last_read = "";
  reset_recordings();
}

const char* last_number_read() {
  return counts.last_read;
}

}  // namespace levin::test

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&levin::test::run_operator>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &levin::test::empty);
  library.impl("empty_strided", &levin::test::empty_strided);
  library.impl("_copy_from", &levin::test::copy_from);
  library.impl("_copy_from_and_resize", &levin::test::copy_from_and_resize);
  library.impl("record_stream", &levin::test::record_stream);
  library.impl("set_.source_Storage_storage_offset", &levin::test::set_storage);
  library.impl("convolution_overrideable", &levin::test::convolution);
  library.impl("convolution_backward_overrideable", &levin::test::convolution_backward);
}
