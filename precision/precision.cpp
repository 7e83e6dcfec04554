#include "levin/precision/precision.h"

#include "levin/core/error.h"
#include "levin/precision/full_precision.h"
#include "levin/precision/mixed_precision.h"

namespace levin {

std::unique_ptr<Precision> make_precision(const std::string& name) {
  if (name == "32-true" || name == "32") return std::make_unique<SinglePrecision>();
  if (name == "64-true" || name == "64") return std::make_unique<TruePrecision>("64-true", at::kDouble);
  if (name == "bf16-true") return std::make_unique<TruePrecision>("bf16-true", at::kBFloat16);
  if (name == "bf16-mixed" || name == "bf16") return std::make_unique<MixedPrecision>();
  const std::vector<std::string> known = {"32-true", "64-true", "bf16-true", "bf16-mixed"};
  throw ConfigError("TrainerOptions.precision: unknown precision \"" + name + "\"." + did_you_mean(name, known) +
                    " Known: " + join(known) + ".");
}

}  // namespace levin
