#include "levin/c/tensor.h"

#include <ATen/DLConvertor.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "levin/c/call.h"

namespace levin::c {

namespace {

constexpr int32_t kMaxDimensions = 64;

constexpr std::array kTypes{std::pair{LEVIN_FLOAT32, at::kFloat}, std::pair{LEVIN_FLOAT64, at::kDouble},
                            std::pair{LEVIN_FLOAT16, at::kHalf},  std::pair{LEVIN_BFLOAT16, at::kBFloat16},
                            std::pair{LEVIN_INT8, at::kChar},     std::pair{LEVIN_INT16, at::kShort},
                            std::pair{LEVIN_INT32, at::kInt},     std::pair{LEVIN_INT64, at::kLong},
                            std::pair{LEVIN_UINT8, at::kByte},    std::pair{LEVIN_BOOL, at::kBool}};

at::ScalarType type_of(levin_dtype dtype) {
  for (const auto& [number, type] : kTypes) {
    if (static_cast<levin_dtype>(number) == dtype) return type;
  }
  throw InvalidArgument("dtype is " + std::to_string(dtype) +
                        ". Pass a constant of levin_dtype, such as LEVIN_FLOAT32.");
}

levin_dtype number_of(at::ScalarType type) {
  for (const auto& [number, known] : kTypes) {
    if (known == type) return static_cast<levin_dtype>(number);
  }
  throw InvalidArgument(std::string("the tensor has the type ") + c10::toString(type) +
                        ", which levin_dtype does not have. Use levin_tensor_to_dlpack.");
}

void check_dimensions(int64_t ndim) {
  if (ndim >= 0 && ndim <= kMaxDimensions) return;
  throw InvalidArgument("ndim is " + std::to_string(ndim) + ". Pass 0 to " + std::to_string(kMaxDimensions) + ".");
}

// The sizes as Levin's own, and the number of elements from the first to the last one in memory.
struct Layout {
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  bool is_empty = false;
};

void check_not_negative(const std::vector<int64_t>& values, const char* argument) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k] >= 0) continue;
    throw InvalidArgument(std::string(argument) + "[" + std::to_string(k) + "] is " + std::to_string(values[k]) +
                          ". Pass numbers >= 0.");
  }
}

// A product or sum that does not fit would make LibTorch accept a layout that leaves the memory.
void check_extent(const Layout& layout) {
  int64_t last = 0;
  int64_t count = 1;
  for (size_t k = 0; k < layout.shape.size(); ++k) {
    int64_t distance = 0;
    const int64_t steps = layout.shape[k] - 1;
    if (__builtin_mul_overflow(steps, layout.strides[k], &distance) || __builtin_add_overflow(last, distance, &last) ||
        __builtin_mul_overflow(count, layout.shape[k], &count) || last > INT64_MAX / 16 || count > INT64_MAX / 16) {
      throw InvalidArgument("shape and strides describe more memory than there is addresses. Check shape[" +
                            std::to_string(k) + "].");
    }
  }
}

Layout read_layout(int32_t ndim, const int64_t* shape, const int64_t* strides) {
  check_dimensions(ndim);
  Layout layout;
  if (ndim == 0) return layout;
  layout.shape.assign(&given(shape, "shape"), shape + ndim);
  check_not_negative(layout.shape, "shape");
  for (const int64_t size : layout.shape) layout.is_empty = layout.is_empty || size == 0;
  layout.strides.assign(layout.shape.size(), 0);
  if (layout.is_empty) return layout;
  if (strides != nullptr) {
    layout.strides.assign(strides, strides + ndim);
    check_not_negative(layout.strides, "strides");
  } else {
    int64_t stride = 1;
    for (size_t k = layout.shape.size(); k-- > 0;) {
      layout.strides[k] = stride;
      if (__builtin_mul_overflow(stride, layout.shape[k], &stride)) break;  // check_extent reports it
    }
  }
  check_extent(layout);
  return layout;
}

void check_dlpack(const DLTensor& tensor) {
  check_dimensions(tensor.ndim);
  if (tensor.ndim == 0) return;
  const std::vector<int64_t> shape(&given(tensor.shape, "shape"), tensor.shape + tensor.ndim);
  check_not_negative(shape, "shape");
}

void check_data(const void* data, at::ScalarType type) {
  if (data == nullptr) throw InvalidArgument("data is null. Pass the address of the first element.");
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(type) == 0) return;
  throw InvalidArgument(std::string("data is not aligned for ") + c10::toString(type) +
                        ". Pass the address of an element.");
}

DLDevice dlpack_device(const at::Tensor& tensor) {
  DLManagedTensor* managed = at::toDLPack(tensor);
  const DLDevice device = managed->dl_tensor.device;
  managed->deleter(managed);
  return device;
}

struct Tensor {
  at::Tensor value;
};

}  // namespace

levin_tensor* new_tensor(at::Tensor tensor) {
  auto object = std::make_shared<Tensor>(Tensor{std::move(tensor)});
  return static_cast<levin_tensor*>(Handles::instance().add(HandleKind::tensor, std::move(object)));
}

at::Tensor tensor_of(const levin_tensor* handle) {
  return std::static_pointer_cast<Tensor>(Handles::instance().find(HandleKind::tensor, handle))->value;
}

}  // namespace levin::c

using namespace levin::c;

extern "C" {

levin_status levin_tensor_from_data(void* data, levin_dtype dtype, int32_t ndim, const int64_t* shape,
                                    const int64_t* strides, levin_tensor** out) {
  return call("levin_tensor_from_data", [&] {
    levin_tensor*& result = given(out, "out");
    const at::ScalarType type = type_of(dtype);
    const at::TensorOptions options(type);
    const Layout layout = read_layout(ndim, shape, strides);
    if (!layout.is_empty) check_data(data, type);
    result = new_tensor(layout.is_empty ? at::empty(layout.shape, options)
                                        : at::from_blob(data, layout.shape, layout.strides, options));
  });
}

levin_status levin_tensor_from_dlpack(DLManagedTensor* managed, levin_tensor** out) {
  return call("levin_tensor_from_dlpack", [&] {
    levin_tensor*& result = given(out, "out");
    check_dlpack(given(managed, "managed").dl_tensor);
    result = new_tensor(at::fromDLPack(managed));
  });
}

levin_status levin_tensor_to_dlpack(const levin_tensor* tensor, DLManagedTensor** out) {
  return call("levin_tensor_to_dlpack", [&] {
    DLManagedTensor*& result = given(out, "out");
    result = at::toDLPack(tensor_of(tensor));
  });
}

levin_status levin_tensor_view(const levin_tensor* tensor, levin_view* out) {
  return call("levin_tensor_view", [&] {
    levin_view& view = given(out, "out");
    const at::Tensor value = tensor_of(tensor);
    const bool has_dimensions = value.dim() > 0;
    const DLDevice device = dlpack_device(value);
    view = {.data = value.numel() > 0 ? value.data_ptr() : nullptr,
            .shape = has_dimensions ? value.sizes().data() : nullptr,
            .strides = has_dimensions ? value.strides().data() : nullptr,
            .dtype = number_of(value.scalar_type()),
            .ndim = static_cast<int32_t>(value.dim()),
            .device_type = static_cast<int32_t>(device.device_type),
            .device_index = device.device_id};
  });
}

levin_status levin_tensor_free(levin_tensor* tensor) {
  return call("levin_tensor_free", [&] {
    if (tensor != nullptr) (void)Handles::instance().take(HandleKind::tensor, tensor);
  });
}

}  // extern "C"
