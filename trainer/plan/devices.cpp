#include "levin/trainer/plan/devices.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "levin/core/gpu.h"
#include "levin/core/options/error.h"
#include "levin/strategies/accelerator.h"

namespace levin {

namespace {

// The requested devices: a number, indices, or neither (auto).
struct DeviceRequest {
  std::optional<int64_t> count = std::nullopt;  // -1: all
  std::vector<int64_t> indices = {};
  bool on_cpu = false;
};

std::optional<int64_t> whole_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Lightning's rule: "2" is a number of devices, "0,1" and "2," are indices.
std::optional<DeviceRequest> read_text(const std::string& text) {
  if (text == "auto") return DeviceRequest{};
  if (text.find(',') == std::string::npos) {
    const auto count = whole_number(text);
    return count ? std::optional(DeviceRequest{.count = *count}) : std::nullopt;
  }
  DeviceRequest request;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const auto index = whole_number(std::string_view(text).substr(start, end - start));
    if (!index) return std::nullopt;
    request.indices.push_back(*index);
    start = end + 1;
  }
  return request;
}

// [cpu, cpu]: logical CPU devices.
std::optional<DeviceRequest> read_words(const std::vector<std::string>& words) {
  const bool all_cpu = std::all_of(words.begin(), words.end(), [](const std::string& word) { return word == "cpu"; });
  if (!all_cpu) return std::nullopt;
  return DeviceRequest{.count = static_cast<int64_t>(words.size()), .on_cpu = true};
}

std::optional<DeviceRequest> read_request(const TrainerOptions& o) {
  if (const auto* count = std::get_if<int64_t>(&o.devices)) return DeviceRequest{.count = *count};
  if (const auto* list = std::get_if<std::vector<int64_t>>(&o.devices)) return DeviceRequest{.indices = *list};
  if (const auto* words = std::get_if<std::vector<std::string>>(&o.devices)) return read_words(*words);
  return read_text(std::get<std::string>(o.devices));
}

std::string seen_text(const TrainerOptions& o) {
  if (const auto* count = std::get_if<int64_t>(&o.devices)) return std::to_string(*count);
  if (const auto* words = std::get_if<std::vector<std::string>>(&o.devices)) return "[" + join(*words) + "]";
  if (std::holds_alternative<std::vector<int64_t>>(o.devices)) return "an empty list";
  return "\"" + std::get<std::string>(o.devices) + "\"";
}

void add_problem(Problems& problems, const std::string& text) {
  problems.add({}, "TrainerOptions.devices", text);
}

// The devices of the plan's accelerator.
struct Present {
  std::string noun;  // "GPU", "xpu device"
  int64_t count;
};

Present present_devices(const RunPlan& plan) {
  const std::string noun = plan.device == "cuda" ? "GPU" : plan.device + " device";
  return {noun, accelerator(*accelerator_type(plan.device)).device_count()};
}

std::string present_text(const Present& present) {
  const std::string count = count_of(present.count, present.noun);
  return present.count == 1 ? "there is " + count + " (0)"
                            : "there are " + count + " (0 to " + std::to_string(present.count - 1) + ")";
}

std::vector<int64_t> first_indices(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void check_indices(const std::vector<int64_t>& indices, const Present& present, Problems& problems) {
  std::set<int64_t> seen;
  for (const int64_t index : indices) {
    const std::string name = present.noun + " " + std::to_string(index);
    if (index < 0 || index >= present.count) {
      add_problem(problems, name + " was asked for; " + present_text(present) + ".");
    } else if (!seen.insert(index).second) {
      add_problem(problems, name + " is named twice. Name each once.");
    }
  }
}

std::optional<int64_t> resolve_indices(const DeviceRequest& request, RunPlan& plan, Problems& problems) {
  const Present present = present_devices(plan);
  if (!request.indices.empty()) {
    check_indices(request.indices, present, problems);
    plan.device_indices = request.indices;
    return static_cast<int64_t>(request.indices.size());
  }
  const int64_t count = request.count.value_or(-1) == -1 ? present.count : *request.count;
  if (count > present.count) {
    add_problem(problems, std::to_string(count) + " were asked for; " + present_text(present) + ".");
  }
  plan.device_indices = first_indices(std::min(count, present.count));
  return request.count ? std::optional(count) : std::nullopt;
}

}  // namespace

std::vector<std::string> known_accelerators() {
  std::vector<std::string> known{"auto", "cpu", "gpu", "cuda"};
  const auto present = present_accelerators();
  known.insert(known.end(), present.begin(), present.end());
  return known;
}

void resolve_accelerator(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  plan.device = "cpu";
  if (o.accelerator == "cpu") return;
  if (o.accelerator == "auto") {
    if (why_no_gpu().empty()) plan.device = "cuda";
    return;
  }
  if (const auto type = o.accelerator == "gpu" ? std::optional(at::kCUDA) : accelerator_type(o.accelerator)) {
    const std::string problem = why_no_accelerator(*type);
    if (!problem.empty()) problems.add({}, "TrainerOptions.accelerator", o.accelerator + ": " + problem);
    if (problem.empty()) plan.device = accelerator_name(*type);
    return;
  }
  const std::vector<std::string> known = known_accelerators();
  problems.add(
      {}, "TrainerOptions.accelerator",
      "\"" + o.accelerator + "\" is not known." + did_you_mean(o.accelerator, known) + " Known: " + join(known) + ".");
}

std::optional<int64_t> resolve_devices(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  const std::optional<DeviceRequest> request = read_request(o);
  const auto* list = std::get_if<std::vector<int64_t>>(&o.devices);
  const bool is_count = request && request->count && (*request->count >= 1 || *request->count == -1);
  const bool is_nothing = !request || (list != nullptr && list->empty()) || (request->count && !is_count);
  if (is_nothing) {
    add_problem(problems,
                seen_text(o) + " is not a number of devices, nor a list of them. Use auto, 1, [0] or [cpu, cpu].");
    return 1;
  }
  if (request->on_cpu) plan.device = "cpu";
  if (plan.device != "cpu") return resolve_indices(*request, plan, problems);
  if (!request->indices.empty()) return static_cast<int64_t>(request->indices.size());
  return request->count && *request->count == -1 ? std::nullopt : request->count;
}

}  // namespace levin
