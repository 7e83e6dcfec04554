// The classes of the part levin_models, for run files. core/process/parts.cpp lists the same names.
#include "levin/callbacks/lora.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/models/compiled_module.h"
#include "levin/models/exported_model.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_lm.h"
#include "levin/models/tabular_model.h"

namespace levin {

LEVIN_PART(models) {
  auto& models = Registry<LightningModule>::instance();
  models.add<CompiledModule>("CompiledModule", "a PyTorch module whose training step was compiled ahead of time");
  models.add<ExportedModule>("ExportedModule", "a PyTorch model exported from Python: the .pt2 file of torch.export");
  models.add<HuggingFaceClassifier>("HuggingFaceClassifier", "classifies text or images with a Hugging Face model");
  models.add<HuggingFaceLM>("HuggingFaceLM", "a causal or masked language model from a Hugging Face folder");
  models.add<TabularModel>("TabularModel",
                           "classes or numbers from a table: embeddings of categories and a perceptron");
  auto& callbacks = Registry<Callback>::instance();
  callbacks.add<LoRA>("LoRA", "trains low-rank updates of layers; reads and writes PEFT's adapters");
}

}  // namespace levin
