// The peak of a GPU by its data sheet: for the fraction of it that training uses (MFU).
#pragma once

#include <optional>
#include <string>

namespace levin {

/// The number format of matrix products.
enum class MatmulType { float64, float32, tf32, half, bfloat16 };

/// Returns the floating-point operations per second of dense matrices, for a device name as NVML gives it ("NVIDIA
/// H200"). Unset for a device or a type that is not in the table.
[[nodiscard]] std::optional<double> peak_flops(const std::string& device_name, MatmulType type);

}  // namespace levin
