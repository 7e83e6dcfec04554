#include "levin/models/exported/read_archive.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/error.h"
#include "levin/models/exported/read_program.h"
#include "levin/models/exported/schema_types.h"
#include "levin/models/exported/zip_archive.h"

namespace levin::exported {

namespace {

constexpr uint64_t kMostJson = 512 << 20;

nlohmann::json parse_json(const ZipArchive& archive, const std::string& name, const std::string& text) {
  try {
    return detail::parse_strictly<nlohmann::json>(text);
  } catch (const CheckpointError& error) {
    throw Error(archive.path() + ": " + name + " is " + error.what() + ".");
  }
}

nlohmann::json read_json(const ZipArchive& archive, const std::string& name) {
  return parse_json(archive, name, archive.read(name, kMostJson));
}

// "model" of torch.export.save, or the only one of a package.
std::string model_name(const ZipArchive& archive) {
  const std::string folder = "models/", ending = ".json";
  std::vector<std::string> models;
  for (const std::string& name : archive.names()) {
    if (!name.starts_with(folder) || !name.ends_with(ending) || name.size() <= folder.size() + ending.size()) continue;
    models.push_back(name.substr(folder.size(), name.size() - folder.size() - ending.size()));
  }
  if (models.size() == 1) return models[0];
  if (std::find(models.begin(), models.end(), "model") != models.end()) return "model";
  if (!models.empty())
    throw Error(archive.path() + " has several models (" + cut_text(join(models)) + ") and none called \"model\".");
  if (archive.has("serialized_exported_program.json") || archive.has("version")) {
    throw Error(archive.path() +
                " was saved by a PyTorch before 2.9, whose weights are pickled: save it again with 2.9 to 2.11.");
  }
  if (archive.has("data.pkl") || archive.has("constants.pkl")) {
    throw Error(archive.path() +
                " is a file of torch.save or TorchScript, whose contents are pickled. Save the program of "
                "torch.export.export with torch.export.save; a state_dict goes through `levin convert`.");
  }
  throw Error(archive.path() +
              " has no models/model.json, so no program of torch.export: a compiled package cannot be trained. Save "
              "it with torch.export.save.");
}

std::vector<StoredTensor> read_list(const ZipArchive& archive, const std::string& folder, const std::string& name) {
  if (!archive.has(folder + name)) return {};
  const nlohmann::json json = read_json(archive, folder + name);
  const std::string file = archive.path() + ": " + folder + name;
  return read_tensors(archive, folder, JsonView(json, file));
}

bool same_tensors(const std::vector<StoredTensor>& one, const std::vector<StoredTensor>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
    return a.name == b.name && a.tensor.scalar_type() == b.tensor.scalar_type() && a.tensor.equal(b.tensor);
  });
}

// The program of the model in evaluation mode, unless it is the same.
void read_evaluation(const ZipArchive& archive, const std::string& model, const std::string& text, Contents& contents) {
  const std::string own = "evaluation", name = "models/" + own + ".json";
  contents.has_evaluation = model != own && archive.has(name);
  if (!contents.has_evaluation) return;
  const std::string other = archive.read(name, kMostJson);
  auto constants = read_list(archive, "data/constants/", own + "_constants_config.json");
  if (other == text && same_tensors(constants, contents.constants)) return;
  const nlohmann::json json = parse_json(archive, name, other);
  const std::string file = archive.path() + ": " + name;
  contents.evaluation = EvaluationContents{read_program(JsonView(json, file)), std::move(constants)};
}

}  // namespace

Contents read_archive(const std::string& path) {
  const ZipArchive archive(path);
  const std::string model = model_name(archive);
  if (!archive.has("byteorder") || archive.read("byteorder", 16) != "little") {
    throw Error(path + " was not saved by a machine with little-endian numbers.");
  }
  const std::string name = "models/" + model + ".json";
  const std::string text = archive.read(name, kMostJson);
  const nlohmann::json json = parse_json(archive, name, text);
  const std::string file = path + ": " + name;
  Contents contents{.program = read_program(JsonView(json, file)), .weights = {}, .constants = {}};
  contents.weights = read_list(archive, "data/weights/", model + "_weights_config.json");
  contents.constants = read_list(archive, "data/constants/", model + "_constants_config.json");
  // All tensors of a program are usually on one device: that of its first input.
  const JsonView graph = JsonView(json, file)["graph_module"]["graph"];
  for (const Argument& input : contents.program.graph.inputs) {
    if (input.kind != Argument::Kind::value) continue;
    const auto meta = graph["tensor_values"].find(contents.program.graph.values[input.value].c_str());
    if (!meta) continue;
    contents.exported_on = read_device((*meta)["device"]);
    break;
  }
  read_evaluation(archive, model, text, contents);
  return contents;
}

}  // namespace levin::exported
