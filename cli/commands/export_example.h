// What of a module becomes a graph, and which tensors of a batch are its inputs.
#pragma once

#include <string>

#include "levin/cli/commands/export_options.h"
#include "levin/data/batch.h"
#include "levin/models/onnx_export.h"

namespace levin {

struct ExportExample {
  OnnxExample inputs = {};
  OnnxForward forward = {};
  std::string output_name = "output";
};

/// `module` and `batch` must live as long as the result.
[[nodiscard]] ExportExample export_example(LightningModule& module, const Batch& batch, ExportMethod method);

}  // namespace levin
