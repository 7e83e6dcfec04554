#include "levin/models/exported/schema_types.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "levin/core/error.h"

namespace levin::exported {

namespace {

// By their numbers in a file.
const std::map<int64_t, c10::ScalarType>& dtypes() {
  using enum c10::ScalarType;
  static const std::map<int64_t, c10::ScalarType> types = {{1, Byte},
                                                           {2, Char},
                                                           {3, Short},
                                                           {4, Int},
                                                           {5, Long},
                                                           {6, Half},
                                                           {7, Float},
                                                           {8, Double},
                                                           {9, ComplexHalf},
                                                           {10, ComplexFloat},
                                                           {11, ComplexDouble},
                                                           {12, Bool},
                                                           {13, BFloat16},
                                                           {28, UInt16},
                                                           {29, Float8_e4m3fn},
                                                           {30, Float8_e5m2},
                                                           {31, Float8_e4m3fnuz},
                                                           {32, Float8_e5m2fnuz}};
  return types;
}

}  // namespace

bool is_dtype(int64_t value) {
  return std::any_of(dtypes().begin(), dtypes().end(),
                     [value](const auto& dtype) { return static_cast<int64_t>(dtype.second) == value; });
}

c10::ScalarType read_dtype(const JsonView& number) {
  const auto found = dtypes().find(number.integer());
  if (found == dtypes().end())
    number.refuse("is " + std::to_string(number.integer()) + ", which is no dtype of torch.export");
  return found->second;
}

c10::Layout read_layout(const JsonView& number) {
  if (number.integer() == 7) return c10::kStrided;
  number.refuse("is layout " + std::to_string(number.integer()) +
                "; Levin has strided tensors (7) only, so densify the model's sparse tensors before the export");
}

c10::MemoryFormat read_memory_format(const JsonView& number) {
  constexpr std::array<c10::MemoryFormat, 4> formats = {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
                                                        c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve};
  const int64_t wanted = number.integer();
  if (wanted < 1 || wanted > 4)
    number.refuse("is " + std::to_string(wanted) + ", which is no memory format of torch.export");
  return formats[static_cast<size_t>(wanted - 1)];
}

c10::Device read_device(const JsonView& device) {
  const std::string type = device["type"].text();
  const auto index = device.find("index");
  const int64_t number = index ? index->integer() : -1;
  if (type == "cpu") return c10::Device(c10::kCPU);
  if (type == "meta") return c10::Device(c10::kMeta);
  if (number < -1 || number > 127) device.refuse("has the index " + std::to_string(number));
  if (type == "cuda") return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(number));
  device.refuse("is on \"" + cut_text(type) + "\"; export the model on the CPU, Levin places it");
}

}  // namespace levin::exported
