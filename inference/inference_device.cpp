#include "levin/inference/inference_device.h"

#include <charconv>
#include <optional>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/gpu.h"
#include "levin/core/tensor_text.h"
#include "levin/strategies/accelerator.h"

namespace levin {

namespace {

constexpr const char* kOption = "InferenceOptions.device: ";

[[noreturn]] void refuse_unknown(const std::string& device, const std::string& name) {
  std::vector<std::string> known{"auto", "cpu", "gpu", "cuda"};
  for (const std::string& present : present_accelerators()) known.push_back(present);
  throw ConfigError(kOption + ("\"" + cut_text(device) + "\" is not known.") + did_you_mean(name, known) +
                    " Known: " + join(known) + "; all but auto and cpu with an index too, as cuda:1.");
}

// A kind of device and which one of it.
struct NamedDevice {
  at::DeviceType type = at::kCPU;
  int64_t index = 0;
};

NamedDevice read_name(const std::string& device) {
  const size_t colon = device.find(':');
  const std::string name = device.substr(0, colon);
  const auto type = name == "gpu" ? std::optional(at::kCUDA) : accelerator_type(name);
  if (!type) refuse_unknown(device, name);
  if (colon == std::string::npos) return {*type, 0};
  int64_t index = -1;
  const std::string digits = device.substr(colon + 1);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (code != std::errc() || end != digits.data() + digits.size() || index < 0) {
    throw ConfigError(kOption + ("\"" + cut_text(device) + "\" has no index after its colon. Write ") + name + ", or " +
                      name + ":0.");
  }
  return {*type, index};
}

// What is missing, with this option's name in its advice.
std::string why_not(at::DeviceType type) {
  std::string problem = why_no_accelerator(type);
  const std::string other = "accelerator: cpu";
  if (const size_t place = problem.find(other); place != std::string::npos) {
    problem.replace(place, other.size(), "device: cpu");
  }
  return problem;
}

}  // namespace

at::Device inference_device(const std::string& device) {
  if (device == "cpu" || (device == "auto" && !why_no_gpu().empty())) return at::kCPU;
  const NamedDevice named = device == "auto" ? NamedDevice{at::kCUDA, 0} : read_name(device);
  if (const std::string problem = why_not(named.type); !problem.empty()) {
    throw ConfigError(kOption + device + ": " + problem);
  }
  const int64_t present = accelerator(named.type).device_count();
  const std::string name = accelerator_name(named.type);
  if (named.index >= present) {
    throw ConfigError(kOption + device + " was asked for; there " + (present == 1 ? "is " : "are ") +
                      count_of(present, named.type == at::kCUDA ? "GPU" : name + " device") + ", from " + name +
                      ":0 on.");
  }
  const at::Device found(named.type, static_cast<c10::DeviceIndex>(named.index));
  use_accelerator(found);
  return found;
}

}  // namespace levin
