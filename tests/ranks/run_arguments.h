// The command line of rank_program: key=value, or a key alone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "levin/trainer/trainer_options.h"

namespace levin::test {

class RunArguments {
 public:
  explicit RunArguments(const std::vector<std::string>& all) {
    for (const std::string& argument : all) {
      const size_t equals = argument.find('=');
      arguments_[argument.substr(0, equals)] = equals == std::string::npos ? "" : argument.substr(equals + 1);
    }
  }
  [[nodiscard]] bool has(const std::string& key) const { return arguments_.contains(key); }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = arguments_.find(key);
    return found == arguments_.end() ? otherwise : found->second;
  }
  [[nodiscard]] int64_t number(const std::string& key, int64_t otherwise) const {
    return has(key) ? std::stoll(arguments_.at(key)) : otherwise;
  }

 private:
  std::map<std::string, std::string> arguments_;
};

/// Returns true if these runs use GPUs, also simulated ones: LEVIN_TEST_ON_GPUS=gloo or nccl.
inline bool on_gpus() {
  return std::getenv("LEVIN_TEST_ON_GPUS") != nullptr;
}
/// Returns true if a run would take all GPUs: a run on GPUs that no launcher has started.
inline bool is_alone_on_gpus() {
  return on_gpus() && std::getenv("WORLD_SIZE") == nullptr;
}
inline std::string backend_of(const RunArguments& arguments) {
  return arguments.text("backend", on_gpus() ? std::getenv("LEVIN_TEST_ON_GPUS") : "auto");
}

inline std::variant<bool, std::string> record_steps_of(const RunArguments& arguments) {
  const std::string value = arguments.text("record", "");
  if (!value.empty()) return value;
  return arguments.has("record");
}

inline NonFiniteLoss nonfinite_loss_of(const RunArguments& arguments) {
  if (arguments.has("rollback")) return NonFiniteLoss::rollback;
  if (arguments.has("skip_nonfinite")) return NonFiniteLoss::skip;
  return arguments.has("ignore_nonfinite") ? NonFiniteLoss::ignore : NonFiniteLoss::stop;
}

}  // namespace levin::test
