// levin convert lightning.yaml --output run.yaml: translates a LightningCLI file to a run file.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// Options of "levin convert".
struct ConvertOptions {
  std::string output = "";
  std::string model = "";
  std::string data = "";
  std::string optimizer = "";
  std::string lr_scheduler = "";

  template <class = void>
  static auto fields() {
    using O = ConvertOptions;
    return levin::fields(field("output", &O::output, "the file to write, which must not exist; empty: standard output"),
                         field("model", &O::model, "class of the model, if LightningCLI was given it in Python"),
                         field("data", &O::data, "the same for the data module"),
                         field("optimizer", &O::optimizer, "the same for the optimizer"),
                         field("lr_scheduler", &O::lr_scheduler, "the same for the schedule"));
  }
};

/// `arguments` follow "levin convert". Options that could not be translated are listed on standard error. Returns
/// kExitOk, kExitPartly if something was left out, or kExitBadConfig if nothing was written.
int run_convert(const std::vector<std::string>& arguments, int width);

}  // namespace levin
