#include "levin/models/compiled/step_manifest.h"

#include <sys/utsname.h>
#include <torch/headeronly/version.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/error.h"

namespace levin {

namespace {

using Json = nlohmann::json;

const std::map<std::string, at::ScalarType>& compiled_dtypes() {
  static const std::map<std::string, at::ScalarType> all = {
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},     {"bool", at::kBool}};
  return all;
}

std::vector<CompiledTensor> read_tensors(const Json& list) {
  std::vector<CompiledTensor> tensors;
  for (const Json& one : list) {
    CompiledTensor tensor{.name = one.value("name", std::string()),
                          .shape = one.at("shape").get<std::vector<int64_t>>(),
                          .requires_grad = one.value("requires_grad", false)};
    const auto found = compiled_dtypes().find(one.at("dtype").get<std::string>());
    if (found == compiled_dtypes().end()) throw Error("it names the type " + cut_text(one.at("dtype").dump()));
    tensor.dtype = found->second;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<CompiledSlot> read_slots(const Json& list, const std::set<std::string>& known, size_t batch) {
  std::vector<CompiledSlot> slots;
  for (const Json& one : list) {
    const auto text = one.get<std::string>();
    const size_t colon = text.find(':');
    CompiledSlot slot{.kind = text.substr(0, colon)};
    const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (slot.kind == "batch") {
      slot.index = rest.size() == 1 && rest[0] >= '0' && rest[0] <= '9' ? static_cast<size_t>(rest[0] - '0') : batch;
      if (slot.index >= batch) throw Error("it describes no " + cut_text(text));
    } else if (slot.kind == "tensor" || slot.kind == "gradient" || slot.kind == "buffer") {
      if (known.count(rest) == 0) throw Error("it describes no tensor \"" + cut_text(rest) + "\"");
      slot.name = rest;
    } else if (slot.kind != "loss" && slot.kind != "prediction" && slot.kind != "unused") {
      throw Error("it has an unknown \"" + cut_text(text) + "\"");
    }
    slots.push_back(std::move(slot));
  }
  return slots;
}

CompiledGraph read_graph(const Json& graph, const std::set<std::string>& known, size_t batch) {
  CompiledGraph read{.dynamic_batch = graph.at("dynamic_batch").get<bool>(),
                     .inputs = read_slots(graph.at("inputs"), known, batch),
                     .outputs = read_slots(graph.at("outputs"), known, batch)};
  if (read.outputs.empty() || read.outputs[0].kind != "loss") {
    bool has_loss = false;  // changed buffers come first
    for (const CompiledSlot& slot : read.outputs) has_loss = has_loss || slot.kind == "loss";
    if (!has_loss) throw Error("a graph has no loss");
  }
  return read;
}

StepManifest read_manifest(const Json& json) {
  if (const auto format = json.at("format").get<std::string>(); format != "levin-compiled-1") {
    throw Error("its format is \"" + cut_text(format) + "\", and this Levin reads levin-compiled-1");
  }
  StepManifest read{.source = json.value("source", std::string()),
                    .torch = json.at("torch").get<std::string>(),
                    .device = json.at("device").get<std::string>(),
                    .machine = json.at("machine").get<std::string>(),
                    .loss = json.value("loss", std::string()),
                    .cpu_flags = json.at("cpu_flags").get<std::vector<std::string>>(),
                    .random = json.value("random", std::vector<std::string>()),
                    .parameters = read_tensors(json.at("parameters")),
                    .buffers = read_tensors(json.at("buffers")),
                    .constants = read_tensors(json.at("constants")),
                    .batch = read_tensors(json.at("batch"))};
  std::set<std::string> known;
  for (const auto* tensors : {&read.parameters, &read.buffers, &read.constants}) {
    for (const CompiledTensor& tensor : *tensors) known.insert(tensor.name);
  }
  const Json& graphs = json.at("graphs");
  read.training = read_graph(graphs.at("training"), known, read.batch.size());
  read.evaluation = read_graph(graphs.at("evaluation"), known, read.batch.size());
  return read;
}

// The first list of features in /proc/cpuinfo; all cores of a machine have the same.
std::set<std::string> features_of(const std::string& cpuinfo) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("flags", 0) != 0 || line.find(':') == std::string::npos) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
  }
  return {};
}

// "2.11" of "2.11.0": releases with the same first two numbers run each other's packages.
std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

StepManifest read_step_manifest(const std::string& text, const std::string& path) {
  const std::string fix = ". Write the file again with this Levin's tools/compile_step.py.";
  try {
    return read_manifest(detail::parse_strictly<Json>(text));
  } catch (const Json::exception& error) {
    throw Error(path + ": its description is not complete: " + cut_text(error.what(), 200) + fix);
  } catch (const Error& error) {
    throw Error(path + ": its description cannot be used: " + error.what() + fix);
  }
}

void check_compiled_for(const StepManifest& manifest, const std::string& path, const std::string& cpuinfo) {
  const std::string again =
      " Compile it again with tools/compile_step.py and PyTorch " TORCH_VERSION " on this machine.";
  const auto refuse = [&](const std::string& what) { throw Error(path + " was compiled " + what + "." + again); };
  if (minor_version(manifest.torch) != minor_version(TORCH_VERSION)) {
    refuse("by PyTorch " + cut_text(manifest.torch) + ", and this Levin runs LibTorch " TORCH_VERSION);
  }
  if (manifest.device != "cpu") refuse("for " + cut_text(manifest.device) + ", and Levin runs compiled steps on CPUs");
  utsname system{};
  if (::uname(&system) == 0 && manifest.machine != system.machine) {
    refuse("for " + cut_text(manifest.machine) + " processors, and this machine has " + system.machine);
  }
  std::vector<std::string> missing;
  const std::set<std::string> here = features_of(cpuinfo);
  for (const std::string& flag : manifest.cpu_flags) {
    if (here.count(flag) == 0) missing.push_back(cut_text(flag));
  }
  if (!missing.empty()) refuse("for a processor with " + join(missing) + ", which this one lacks");
}

}  // namespace levin
