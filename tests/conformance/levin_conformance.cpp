// levin_conformance SCENARIO.json OUT.json: does what the scenario says and writes what happened, in the same form as
// the runs recorded from PyTorch Lightning. compare.py compares the two.
// levin_conformance serve: pairs of such files are read from standard input (support/forked_runs.h).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "conformance/scenario.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/loggers/csv_logger.h"
#include "support/forked_runs.h"

namespace conformance {
namespace {

namespace fs = std::filesystem;

Json metrics_json(const levin::Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out[name] = number(value);
  return out;
}

Json csv_rows(const fs::path& path) {
  Json rows = Json::array();
  std::ifstream file(path);
  std::string line;
  std::vector<std::string> columns;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::stringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    Json row = Json::object();
    for (size_t k = 0; k < cells.size(); ++k) {
      if (!cells[k].empty()) row[columns[k]] = number(std::stod(cells[k]));
    }
    rows.push_back(row);
  }
  return rows;
}

Json checkpoint_files(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".ckpt") files.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// What the checkpoint holds: its step and the weights.
Json contents(const fs::path& file) {
  const levin::State state = levin::load_checkpoint(file.string());
  Json out = {{"global_step", state.get<int64_t>("global_step")}};
  const at::Tensor weight = state.tensors.at("model.layer.weight").flatten().to(at::kDouble);
  out["weight"] = Json::array();
  for (int64_t j = 0; j < weight.numel(); ++j) out["weight"].push_back(number(weight[j].item<double>()));
  out["bias"] = number(state.tensors.at("model.layer.bias").item<double>());
  return out;
}

// A saved path as the recorded files have it: below the run's folder.
Json relative_path(const std::string& path, const fs::path& folder) {
  return path.empty() ? "" : fs::relative(path, folder).string();
}

void describe_callbacks(const levin::Trainer& trainer, const fs::path& folder, Json& out) {
  for (const auto& callback : trainer.callbacks()) {
    const levin::State state = callback->state_dict();
    if (callback->state_key().starts_with("EarlyStopping")) {
      out["early_stopping"] = {{"stopped_epoch", state.get<int64_t>("stopped_epoch")},
                               {"wait_count", state.get<int64_t>("wait_count")}};
    }
    if (callback->state_key().starts_with("ModelCheckpoint")) {
      const auto score = state.get<std::optional<double>>("best_model_score");
      out["model_checkpoint"].push_back(
          {{"best_model_path", relative_path(state.get<std::string>("best_model_path"), folder)},
           {"best_model_score", score ? number(*score) : Json()},
           {"last_model_path", relative_path(state.get<std::string>("last_model_path"), folder)}});
    }
  }
}

levin::TrainerOptions trainer_options(const Json& scenario, const Json& phase, const fs::path& folder, Trace& trace) {
  Json trainer = phase.contains("trainer") ? phase["trainer"] : scenario.value("trainer", Json::object());
  const Json callbacks = phase.contains("callbacks") ? phase["callbacks"] : scenario.value("callbacks", Json::array());
  Json list = Json::array();
  int64_t checkpoints = 0;
  for (Json callback : callbacks) {
    if (callback.at("class_path") == "ModelCheckpoint") {
      const std::string dirpath = "ckpt" + std::to_string(checkpoints++);
      // Lightning refreshes last.ckpt only where one of the best is saved; Levin calls that by its name.
      if (callback["init_args"].value("save_last", Json(false)) == true)
        callback["init_args"]["save_last"] = "with_top_k";
      if (callback["init_args"].value("save_last", Json(false)) == "newest") callback["init_args"]["save_last"] = true;
      if (!callback["init_args"].contains("dirpath")) callback["init_args"]["dirpath"] = (folder / dirpath).string();
    }
    list.push_back(callback);
  }
  trainer["callbacks"] = list;
  trainer["enable_checkpointing"] = checkpoints > 0;
  trainer["enable_progress_bar"] = trainer["enable_model_summary"] = false;
  trainer["default_root_dir"] = folder.string();
  trainer["nonfinite_loss"] = "ignore";  // as Lightning
  levin::TrainerOptions options;
  levin::Problems problems;
  levin::read_options(to_config(trainer), options, "trainer", problems);
  problems.throw_if_any();
  options.logger = levin::CSVLogger({.flush_logs_every_n_steps = 1});
  options.callbacks.push_back(TracingCallback(trace));
  return options;
}

Json run_phase(const Json& scenario, const Json& phase, const fs::path& folder) {
  Trace trace;
  Json out = {{"run", phase.at("run")}};
  ScenarioModule module(scenario, trace);
  const auto data = make_data_module(scenario, trace);
  levin::Trainer trainer(trainer_options(scenario, phase, folder, trace));
  std::string ckpt_path = phase.value("ckpt_path", "");
  if (ckpt_path.starts_with("#")) {  // the n-th of the checkpoints that there are, or none
    const std::vector<std::string> files = checkpoint_files(folder);
    ckpt_path = files.empty() ? "" : files[std::stoul(ckpt_path.substr(1)) % files.size()];
  }
  if (!ckpt_path.empty() && ckpt_path != "best" && ckpt_path != "last") ckpt_path = (folder / ckpt_path).string();
  const std::string what = phase.at("run");
  try {
    if (what == "fit") trainer.fit(module, *data, ckpt_path);
    if (what == "validate" || what == "test") {
      const auto results =
          what == "test" ? trainer.test(module, *data, ckpt_path) : trainer.validate(module, *data, ckpt_path);
      out["results"] = Json::array();
      for (const auto& result : results) out["results"].push_back(metrics_json(result));
    }
    if (what == "predict") {
      out["predictions"] = Json::array();
      for (const auto& loader : trainer.predict(module, *data, ckpt_path)) {
        for (const auto& batch : loader) {
          const at::Tensor flat = batch.flatten().to(at::kDouble);
          for (int64_t i = 0; i < flat.numel(); ++i) out["predictions"].push_back(number(flat[i].item<double>()));
        }
      }
    }
  } catch (const std::exception& error) {
    out["error"] = error.what();
  }
  out["hooks"] = trace.hooks;
  out["losses"] = trace.losses;
  out["lrs"] = trace.lrs;
  out["global_step_after_batch"] = trace.global_step_after_batch;
  out["validations_at"] = trace.validations_at;
  out["global_step"] = trainer.global_step();
  out["current_epoch"] = trainer.current_epoch();
  out["should_stop"] = trainer.should_stop();
  const at::Tensor weight = module.linear->weight.detach().to(at::kDouble);
  out["weight"] = Json::array();
  for (int64_t j = 0; j < weight.size(1); ++j) out["weight"].push_back(number(weight[0][j].item<double>()));
  out["bias"] = number(module.linear->bias.item<double>());
  out["callback_metrics"] = metrics_json(trainer.callback_metrics());
  out["checkpoints"] = checkpoint_files(folder);
  out["checkpoint_contents"] = Json::object();
  for (const std::string file : out["checkpoints"]) out["checkpoint_contents"][file] = contents(folder / file);
  describe_callbacks(trainer, folder, out);
  const fs::path csv = fs::path(trainer.log_dir()) / "metrics.csv";
  if (fs::exists(csv)) out["metrics_csv"] = csv_rows(csv);
  return out;
}

int run(const std::vector<std::string>& arguments) {
  try {
    std::ifstream file(arguments.at(0));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const Json scenario = parse_python_json(text);
    const fs::path folder = fs::absolute(arguments.at(1)).parent_path() / "run";  // one for all ranks
    fs::create_directories(folder);
    Json out = {{"phases", Json::array()}};
    for (const auto& phase : scenario.at("phases")) out["phases"].push_back(run_phase(scenario, phase, folder));
    const char* rank = std::getenv("RANK");
    if (rank == nullptr || rank == std::string("0")) std::ofstream(arguments.at(1)) << python_json_text(out);
  } catch (const std::exception& error) {
    std::cerr << "levin_conformance: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace conformance

namespace levin_conformance {

int run_program(int argc, char** argv) {
  levin::add_builtins();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"serve"}) {
    return levin::test::serve_runs([](const std::vector<std::string>& files) {
      std::filesystem::current_path(std::filesystem::path(files.at(1)).parent_path());
      return conformance::run(files);
    });
  }
  if (arguments.size() == 2) return conformance::run(arguments);
  std::cerr << "usage: levin_conformance SCENARIO.json OUT.json, or levin_conformance serve\n";
  return 2;
}

}  // namespace levin_conformance
