// The numbers of torch.export's schema (torch/_export/serde/schema.py, version 8) as LibTorch's types. Each throws
// Error for a number that has no meaning there. Internal.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "levin/models/exported/json_view.h"

namespace levin::exported {

[[nodiscard]] c10::ScalarType read_dtype(const JsonView& number);
/// Whether a c10::ScalarType as a number is one of those that read_dtype returns.
[[nodiscard]] bool is_dtype(int64_t value);
[[nodiscard]] c10::Layout read_layout(const JsonView& number);
[[nodiscard]] c10::MemoryFormat read_memory_format(const JsonView& number);
/// {"type": "cuda", "index": 0}
[[nodiscard]] c10::Device read_device(const JsonView& device);

}  // namespace levin::exported
