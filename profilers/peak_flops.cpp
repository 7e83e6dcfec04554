#include "levin/profilers/peak_flops.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace levin {

namespace {

// Tera-operations a second, from NVIDIA's data sheets. Where those count structured sparsity, the number is halved.
// 0: the device has no units for the type.
struct Peak {
  const char* name;  // part of the device's name
  double float64, float32, tf32, half, bfloat16;
};

// The first name that fits counts, so longer names come first.
constexpr std::array kPeaks{
    Peak{"B200", 37, 75, 1125, 2250, 2250},
    Peak{"GH200", 67, 67, 494.7, 989.4, 989.4},
    Peak{"H200 NVL", 60, 60, 417.5, 835.5, 835.5},
    Peak{"H200", 67, 67, 494.7, 989.4, 989.4},
    Peak{"H100 PCIe", 51, 51, 378, 756, 756},
    Peak{"H100 NVL", 60, 60, 417.5, 835.5, 835.5},
    Peak{"H100", 67, 67, 494.7, 989.4, 989.4},
    Peak{"A100", 19.5, 19.5, 156, 312, 312},
    Peak{"A30", 10.3, 10.3, 82, 165, 165},
    Peak{"A40", 0.58, 37.4, 74.8, 149.7, 149.7},
    Peak{"A10G", 0.49, 31.5, 35, 70, 70},
    Peak{"A10", 0.49, 31.2, 62.5, 125, 125},
    Peak{"A6000", 0.6, 38.7, 77.4, 154.8, 154.8},
    Peak{"L40S", 1.4, 91.6, 183, 362, 362},
    Peak{"L40", 1.4, 90.5, 90.5, 181, 181},
    Peak{"L4", 0.49, 30.3, 60, 121, 121},
    Peak{"V100-PCIE", 7, 14, 14, 112, 0},
    Peak{"V100", 7.8, 15.7, 15.7, 125, 0},
    Peak{"T4", 0.25, 8.1, 8.1, 65, 0},
    Peak{"RTX 5090", 1.6, 104.8, 104.8, 209.5, 209.5},
    Peak{"RTX 4090", 1.3, 82.6, 82.6, 165.2, 165.2},
    Peak{"RTX 3090", 0.56, 35.6, 35.6, 71, 71},
};

// "L4" must not fit "L40" or "RTX 4090".
bool fits(const std::string& device, const std::string& name) {
  for (size_t at = device.find(name); at != std::string::npos; at = device.find(name, at + 1)) {
    const size_t after = at + name.size();
    const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(device[at - 1])) == 0;
    const bool ends = after == device.size() || std::isalnum(static_cast<unsigned char>(device[after])) == 0;
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

std::optional<double> peak_flops(const std::string& device_name, MatmulType type) {
  const auto found =
      std::find_if(kPeaks.begin(), kPeaks.end(), [&](const Peak& p) { return fits(device_name, p.name); });
  if (found == kPeaks.end()) return std::nullopt;
  const std::array by_type{found->float64, found->float32, found->tf32, found->half, found->bfloat16};
  const double tera = by_type[static_cast<size_t>(type)];
  return tera > 0 ? std::optional(1e12 * tera) : std::nullopt;
}

}  // namespace levin
