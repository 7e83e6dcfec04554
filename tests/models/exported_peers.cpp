// exported_peers FOLDER: trains each NAME.pt2 of the folder as NAME.json says, on the batch in NAME.safetensors, and
// prints a line of JSON: the losses of all steps, the loss of the trained model in evaluation mode, and its parameters.
// exported_peers_test.py compares them with Python's.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/exported_model.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/trainer.h"
#include "support/tensor_loader.h"

namespace exported_peers {
using namespace levin;
namespace {

class Peer : public ExportedModule {
 public:
  Peer(ExportedModuleOptions options, std::string optimizer)
      : ExportedModule(std::move(options)), optimizer_(std::move(optimizer)) {
    lr_ = hparams().find("lr")->text;
  }
  OptimizerConfig configure_optimizers() override {
    if (optimizer_ == "SGD") return SGD(parameters(), {.lr = std::stod(lr_)});
    return ExportedModule::configure_optimizers();
  }
  void on_train_start() override { torch::manual_seed(1); }
  void on_train_batch_end(const at::Tensor& loss, const Batch&, int64_t) override {
    losses.push_back(loss.item<double>());
  }

  std::vector<double> losses = {};

 private:
  std::string optimizer_, lr_;
};

nlohmann::json train(const std::string& stem) {
  const auto recorded = nlohmann::json::parse(read_file(stem + ".json"));
  const SafetensorsFile file(stem + ".safetensors");
  std::map<std::string, at::Tensor> named;
  for (const auto& entry : file.entries()) named[entry.name] = file.read(entry);
  std::vector<at::Tensor> batch;
  for (const auto& [name, tensor] : named) batch.push_back(tensor);  // x0, x1, …, y

  ExportedModuleOptions options{.path = stem + ".pt2", .lr = recorded["lr"].get<double>()};
  if (recorded["loss"] == "mse_loss") options.loss = ExportedLoss::mse_loss;
  const auto model = std::make_shared<Peer>(options, recorded["optimizer"].get<std::string>());
  TrainerOptions run;
  run.logger = false;
  run.max_epochs = static_cast<int64_t>(recorded["losses"].size());
  run.enable_progress_bar = false;
  run.enable_model_summary = false;
  run.enable_checkpointing = false;
  run.devices = 1;
  run.precision = recorded["precision"].get<std::string>();
  Trainer trainer(std::move(run));
  trainer.fit(*model, std::make_shared<test::TensorLoader>(batch, batch[0].size(0)));

  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor output = model->predict_step(Batch(batch), 0), &target = batch.back();
  const bool is_sequence = output.dim() == 3 && recorded["loss"] == "cross_entropy";
  const at::Tensor loss = recorded["loss"] == "mse_loss"
                              ? at::mse_loss(output, target)
                              : at::cross_entropy_loss(is_sequence ? output.transpose(1, 2) : output, target);
  return {
      {"losses", model->losses}, {"eval_loss", loss.item<double>()}, {"parameters", model->named_parameters().keys()}};
}

}  // namespace

int run_program(int argc, char** argv) {
  if (argc != 2) return 2;
  int failed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.path().extension() != ".pt2") continue;
    nlohmann::json line = {{"name", entry.path().stem().string()}};
    try {
      line.update(exported_peers::train((entry.path().parent_path() / entry.path().stem()).string()));
    } catch (const std::exception& error) {
      line["error"] = error.what();
      failed = 1;
    }
    std::printf("%s\n", line.dump().c_str());
  }
  return failed;
}

}  // namespace exported_peers
