#include "levin/cli/commands/export_model.h"

#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "levin/adapters/lora.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/weights_used.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/tensors.h"
#include "levin/data/batch.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_module.h"
#include "levin/models/onnx_export.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/no_loader_error.h"
#include "levin/trainer/state/checkpoint_search.h"
#include "levin/trainer/step/override.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// What of a module becomes a graph, and which tensors of a batch are its inputs.
struct ExportExample {
  OnnxExample inputs = {};
  OnnxForward forward = {};
  std::string output_name = "output";
};

// The batch's own where every field is a tensor; else input, or input_0, input_1, …
std::vector<std::string> default_names(const Batch& batch, size_t count) {
  const std::vector<std::string> fields = batch.names();
  bool are_tensors = fields.size() == batch.count();
  for (const std::string& field : fields) are_tensors = are_tensors && batch.kind(field) == FieldKind::tensor;
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) {
    if (are_tensors) names.push_back(fields[k]);
    if (!are_tensors) names.push_back(count == 1 ? "input" : "input_" + std::to_string(k));
  }
  return names;
}

// As in transformers: logits of tokens, with a mask where the model knows its padding, or of images.
ExportExample pretrained_example(HuggingFaceModule& module, const Batch& batch) {
  ExportExample example;
  example.output_name = "logits";
  if (batch[0].is_floating_point()) {
    example.inputs = {{"pixel_values", batch[0]}};
    example.forward = [&module](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{module.model()->forward({.pixel_values = inputs.at(0)}).logits};
    };
    return example;
  }
  example.inputs = {{"input_ids", batch[0]}};
  const auto pad = module.model()->config().pad_token_id();
  if (dynamic_cast<const HuggingFaceClassifier*>(&module) != nullptr && pad) {
    const at::Tensor mask = batch.count() == 3 ? batch[1] : batch[0].ne(*pad);
    example.inputs.emplace_back("attention_mask", mask.to(at::kLong));
  }
  example.forward = [&module](const std::vector<at::Tensor>& inputs) {
    ModelInputs given{.input_ids = inputs.at(0)};
    if (inputs.size() > 1) given.attention_mask = inputs[1];
    return std::vector<at::Tensor>{module.model()->forward(given).logits};
  };
  return example;
}

ExportExample forward_example(LightningModule& module, const Batch& batch) {
  ExportExample example;
  example.inputs = {{default_names(batch, 1).front(), batch[0]}};
  example.forward = [&module](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{module.forward(inputs.at(0))};
  };
  return example;
}

ExportExample predict_example(LightningModule& module, const Batch& batch) {
  ExportExample example;
  const auto names = default_names(batch, batch.count());
  for (size_t k = 0; k < batch.count(); ++k) example.inputs.emplace_back(names[k], batch[k]);
  example.forward = [&module, &batch](const std::vector<at::Tensor>& inputs) {
    Batch given = batch;
    given.tensors = inputs;
    return std::vector<at::Tensor>{module.predict_step(given, 0)};
  };
  return example;
}

ExportExample example_of(LightningModule& module, const Batch& batch, ExportMethod method) {
  if (method == ExportMethod::automatic) {
    if (auto* pretrained = dynamic_cast<HuggingFaceModule*>(&module)) return pretrained_example(*pretrained, batch);
    const bool has_forward = detail::overrides<LightningModule>(module, &LightningModule::forward);
    method = has_forward ? ExportMethod::forward : ExportMethod::predict_step;
  }
  return method == ExportMethod::forward ? forward_example(module, batch) : predict_example(module, batch);
}

// `module` and `batch` must live as long as the result.
ExportExample export_example(LightningModule& module, const Batch& batch, ExportMethod method) {
  if (batch.count() == 0) throw Error("levin export: the data's batches hold no tensors.");
  return example_of(module, batch, method);
}

constexpr const char* kNothingExported = "nothing was written. See levin export --help.";

std::string export_usage(int width) {
  return "levin export --config FILE… [--ckpt_path FILE] [--format onnx|safetensors|hf] --output PATH "
         "[options] [overrides…]\n\n" +
         wrapped(
             "Writes the model of a run for other programs: as a graph of ONNX, as a safetensors file of its "
             "parameters "
             "and buffers by name, or as a folder for Hugging Face's from_pretrained. An ONNX graph is what the model "
             "computes of one batch of the run's data, on the CPU and in evaluation mode.",
             width) +
         "\n" + own_options_table(describe_options<ExportOptions>(), width);
}

// "": any name may be a folder of Hugging Face's.
std::string ending_of(ExportFormat format) {
  return format == ExportFormat::onnx ? ".onnx" : format == ExportFormat::safetensors ? ".safetensors" : "";
}

// The format that the output's ending says, unless --format does.
void settle_format(ExportOptions& options, Problems& problems) {
  const std::string ending = std::filesystem::path(options.output).extension().string();
  std::error_code ignored;
  std::optional<ExportFormat> said;
  for (const ExportFormat format : {ExportFormat::onnx, ExportFormat::safetensors}) {
    if (ending == ending_of(format)) said = format;
  }
  if (!options.format) {
    options.format = said.value_or(ExportFormat::onnx);
    if (said || ending.empty() || std::filesystem::is_directory(options.output, ignored)) return;
    problems.add(
        {}, "--output",
        "\"" + cut_text(options.output) + "\" says no format. Let it end in .onnx or .safetensors, or add --format.");
    return;
  }
  if (!said || *said == *options.format) return;
  const std::string fitting = ending_of(*options.format);
  problems.add({}, "--output",
               "\"" + cut_text(options.output) + "\" ends as a file of " + enum_name(*said) + ", and --format is " +
                   enum_name(*options.format) + ". " +
                   (fitting.empty() ? "Name a folder" : "Let it end in " + fitting) + ", or give --format " +
                   enum_name(*said) + ".");
}

// A wrong name must not overwrite anything.
void check_output(const ExportOptions& options, Problems& problems) {
  if (options.output.find("://") != std::string::npos) {
    problems.add({}, "--output", options.output + " is a URL. Name a file of this machine, and copy it.");
  }
  if (options.output.empty() || options.overwrite) return;
  std::vector<std::string> files{options.output};
  if (options.format == ExportFormat::onnx) files.push_back(options.output + ".data");  // of large weights
  std::error_code ignored;
  for (const std::string& file : files) {
    if (!std::filesystem::exists(file, ignored)) continue;
    problems.add({}, "--output", file + " exists. Give a different name, or add --overwrite.");
  }
}

// The run's options for one batch on the CPU, in float32 or float64. Callbacks stay, as they find checkpoints and may
// change the model; callbacks that write predictions are removed.
TrainerOptions one_batch(TrainerOptions options, bool finds_checkpoint, std::shared_ptr<Callback> exporter) {
  const TrainerOptions defaults;
  Callbacks kept;
  for (const auto& callback : options.callbacks) {
    if (callback.spec().short_name() != "PredictionWriter") kept.push_back(callback);
  }
  kept.push_back(std::move(exporter));
  options.callbacks = std::move(kept);
  options.accelerator = "cpu";
  options.devices = int64_t{1};
  options.num_nodes = 1;
  options.strategy = defaults.strategy;
  if (!options.precision.is_name("64-true")) options.precision = defaults.precision;
  options.limit_val_batches = options.limit_test_batches = options.limit_predict_batches = int64_t{1};
  options.enable_progress_bar = options.enable_model_summary = false;
  options.record_steps = options.cuda_graph = options.channels_last = false;
  options.overfit_batches = 0.0;
  options.fast_dev_run = false;
  options.profiler = {};
  if (!finds_checkpoint) options.logger = false;  // it has the folders of earlier runs
  return options;
}

void write_onnx(const ExportOptions& options, LightningModule& module, const Batch& batch) {
  const ExportExample example = export_example(module, batch, options.method);
  const std::string output = options.output_name.empty() ? example.output_name : options.output_name;
  const OnnxReport report = export_onnx(options.output, module, example.forward, example.inputs,
                                        {.opset = options.opset,
                                         .fixed_batch = options.fixed_batch,
                                         .dynamic_length = options.dynamic_length,
                                         .external_data = options.external_data,
                                         .input_names = split(options.input_names, ','),
                                         .output_names = {output}});
  Console& console = Console::instance();
  console.print(options.output + ": opset " + std::to_string(options.opset) + ", " + count_of(report.nodes, "node") +
                ", " + bytes_text(report.bytes) + " of weights");
  for (const std::string& input : report.inputs) console.print("  input  " + input);
  for (const std::string& result : report.outputs) console.print("  output " + result);
}

void write_safetensors_weights(const ExportOptions& options, const LightningModule& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value().detach();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value().detach();
  write_safetensors(options.output, tensors, {{"format", "pt"}});
  Console::instance().print(options.output + ": " + count_of(static_cast<int64_t>(tensors.size()), "tensor"));
}

void write_folder(const ExportOptions& options, const LightningModule& module) {
  const auto* model = dynamic_cast<const HuggingFaceModule*>(&module);
  if (model == nullptr) {
    throw Error(
        "levin export: --format hf writes models of Hugging Face's kinds, HuggingFaceClassifier and HuggingFaceLM, and "
        "this one is none. Use --format safetensors for its weights, or onnx.");
  }
  model->save_pretrained(options.output);
  Console::instance().print(options.output + ": a folder for from_pretrained");
}

// Exports at the first batch: the data are ready then, and the weights loaded. It ends the run by an exception, so that
// the run has no result, and leaves no folder.
class Exporter final : public Callback {
 public:
  Exporter(ExportOptions options, RunConfig config) : options_(std::move(options)), config_(std::move(config)) {}

  void on_predict_batch_start(Trainer& trainer, LightningModule& module, const Batch& batch, int64_t,
                              int64_t) override {
    write(trainer, module, batch);
  }
  void on_test_batch_start(Trainer& trainer, LightningModule& module, const Batch& batch, int64_t, int64_t) override {
    write(trainer, module, batch);
  }
  void on_validation_batch_start(Trainer& trainer, LightningModule& module, const Batch& batch, int64_t,
                                 int64_t) override {
    write(trainer, module, batch);
  }

  [[nodiscard]] bool is_done() const { return done_; }
  void throw_if_failed() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  [[noreturn]] void write(const Trainer& trainer, LightningModule& module, const Batch& batch) {
    done_ = true;
    try {
      merge_adapters(module);
      if (options_.format == ExportFormat::onnx) write_onnx(options_, module, batch);
      if (options_.format == ExportFormat::safetensors) write_safetensors_weights(options_, module);
      if (options_.format == ExportFormat::hf) write_folder(options_, module);
      report_weights("export", trainer, config_);
    } catch (...) {  // thrown here, its message would begin with this hook
      failure_ = std::current_exception();
    }
    throw Error("the export is done");
  }

  // Other programs know no adapters. These are parameters of a training, and so must be what replaces them.
  void merge_adapters(LightningModule& module) {
    alive_ = module.modules(/*include_self=*/false);
    const c10::InferenceMode off(false);
    merge_lora(module);
  }

  ExportOptions options_;
  RunConfig config_;
  std::vector<std::shared_ptr<torch::nn::Module>> alive_ = {};  // the pass has noted their modes, to restore them
  bool done_ = false;
  std::exception_ptr failure_ = nullptr;
};

// Whether the data, or the model where there are none, have loaders of their own for the stage.
bool has_loader(const RunParts& parts, Stage stage) {
  using D = DataModule;
  using M = LightningModule;
  if (parts.data != nullptr) {
    if (stage == Stage::predict) return detail::overrides<D>(*parts.data, &D::predict_dataloader);
    return stage == Stage::test ? detail::overrides<D>(*parts.data, &D::test_dataloader)
                                : detail::overrides<D>(*parts.data, &D::val_dataloader);
  }
  if (stage == Stage::predict) return detail::overrides<M>(*parts.model, &M::predict_dataloader);
  return stage == Stage::test ? detail::overrides<M>(*parts.model, &M::test_dataloader)
                              : detail::overrides<M>(*parts.model, &M::val_dataloader);
}

void run_one_batch(Trainer& trainer, const RunParts& parts, Stage stage, const std::string& ckpt_path) {
  LightningModule& model = *parts.model;
  DataModule* data = parts.data.get();
  if (stage == Stage::predict) {
    (void)(data != nullptr ? trainer.predict(model, *data, ckpt_path) : trainer.predict(model, ckpt_path));
  } else if (stage == Stage::test) {
    (void)(data != nullptr ? trainer.test(model, *data, ckpt_path) : trainer.test(model, ckpt_path));
  } else {
    (void)(data != nullptr ? trainer.validate(model, *data, ckpt_path) : trainer.validate(model, ckpt_path));
  }
}

// Where batches come from, the first that there is. Those of predictions may be others than the model is trained on,
// such as a prompt.
std::vector<Stage> stages(ExportMethod method) {
  if (method == ExportMethod::predict_step) return {Stage::predict, Stage::test, Stage::validate};
  return {Stage::validate, Stage::test, Stage::predict};
}

// For data with a training loader only: predicts on a training batch, which changes no file of the run.
void export_at_a_training_batch(const RunParts& parts, Trainer& trainer, const std::string& ckpt_path) {
  if (parts.data == nullptr) return;
  parts.data->prepare_data();
  parts.data->setup(Stage::fit);
  const std::shared_ptr<Loader> loader = parts.data->train_dataloader();
  if (loader == nullptr) return;
  (void)trainer.predict(*parts.model, Loaders{loader}, ckpt_path);
}

// Runs until the exporter has a batch.
template <class Run>
void run_until_exported(const Exporter& exporter, const Run& run) {
  try {
    run();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {
    if (!exporter.is_done()) throw;
  }
  exporter.throw_if_failed();
}

// Loggers find the folders of earlier runs, but an export must not create one.
bool needs_loggers(const std::string& ckpt_path, const TrainerOptions& options) {
  if (ckpt_path != kBestIfAny) return ckpt_path == "best" || ckpt_path == "last";
  const auto& loggers = options.logger.loggers;
  const bool are_elsewhere = std::any_of(loggers.begin(), loggers.end(), [](const auto& logger) {
    return logger.spec().init_args.find("save_dir") != nullptr;
  });
  return are_elsewhere || std::filesystem::exists(std::filesystem::path(options.default_root_dir) / "levin_logs");
}

// Of the first of the run's evaluations that has one, else of its training.
void export_at_a_batch(const ResolvedRun& run, const ExportOptions& options) {
  const RunParts parts = make_parts(run.config);
  const auto exporter = std::make_shared<Exporter>(options, run.config);
  const std::string ckpt_path = checkpoint_to_use(run.config, run.trainer);
  const auto make_trainer = [&] {
    const bool keeps_loggers = needs_loggers(ckpt_path, run.trainer);
    auto trainer = std::make_unique<Trainer>(one_batch(run.trainer, keeps_loggers, exporter));
    if (run.config.weights) trainer->start_from(*run.config.weights);
    return trainer;
  };
  for (const Stage stage : stages(options.method)) {
    if (!has_loader(parts, stage)) continue;
    const auto trainer = make_trainer();
    try {
      run_until_exported(*exporter, [&] { run_one_batch(*trainer, parts, stage, ckpt_path); });
    } catch (const NoLoaderError&) {  // it has the method, which returns none
      continue;
    }
    if (exporter->is_done()) return;
  }
  const auto trainer = make_trainer();
  run_until_exported(*exporter, [&] { export_at_a_training_batch(parts, *trainer, ckpt_path); });
  if (exporter->is_done()) return;
  throw ConfigError("levin export: the run has no batch of data, and a model is exported at one. Give it data.");
}

}  // namespace

int run_export(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  ExportOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(export_usage(width));
  const ResolvedRun run = resolve_fit_arguments(read.rest, RunPlace::elsewhere, problems).run;
  settle_format(options, problems);
  check_output(options, problems);
  if (!problems.empty()) return report_problems(problems, kNothingExported);
  options.output = followed_links(options.output);
  export_at_a_batch(run, options);
  return kExitOk;
}

}  // namespace levin
