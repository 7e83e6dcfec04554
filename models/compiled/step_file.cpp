#include "levin/models/compiled/step_file.h"

#include <ATen/ops/mul.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/archive_reader.h"
#include "levin/libtorch/graph_nodes.h"
#include "levin/libtorch/version.h"

namespace levin {

namespace {

const std::map<std::string, at::ScalarType>& compiled_dtypes() {
  static const std::map<std::string, at::ScalarType> all = {
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},     {"bool", at::kBool}};
  return all;
}

std::vector<CompiledTensor> read_tensors(const nlohmann::json& list) {
  std::vector<CompiledTensor> tensors;
  for (const nlohmann::json& one : list) {
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

std::vector<CompiledSlot> read_slots(const nlohmann::json& list, const std::set<std::string>& known, size_t batch) {
  std::vector<CompiledSlot> slots;
  for (const nlohmann::json& one : list) {
    const auto text = one.get<std::string>();
    const size_t colon = text.find(':');
    CompiledSlot slot{.kind = text.substr(0, colon)};
    const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (slot.kind == "batch") {
      slot.index = rest.size() == 1 && rest[0] >= '0' && rest[0] <= '9' ? static_cast<size_t>(rest[0] - '0') : batch;
      if (slot.index >= batch) throw Error("it does not describe " + cut_text(text));
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

CompiledGraph read_graph(const nlohmann::json& graph, const std::set<std::string>& known, size_t batch) {
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

StepManifest read_manifest(const nlohmann::json& json) {
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
  const nlohmann::json& graphs = json.at("graphs");
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

// A file in memory and a name by which it can be opened.
class MemoryFile {
 public:
  MemoryFile(const char* name, std::string_view contents) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw Error(std::string("memfd_create: ") + system_error_text(errno));
    while (!contents.empty()) {
      const ssize_t written = ::write(descriptor_, contents.data(), contents.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw Error(std::string("a file in memory: ") + system_error_text(errno));
      contents.remove_prefix(static_cast<size_t>(written));
    }
  }
  ~MemoryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void keep() { descriptor_ = -1; }

 private:
  int descriptor_;
};

// The first line of an exception of LibTorch, without its stack.
std::string first_line_of(const std::exception& error) {
  const std::string text = error.what();
  return cut_text(text.substr(0, text.find('\n')), 300);
}

class CompiledBackward final : public CustomNode {
 public:
  CompiledBackward(const std::vector<at::Tensor>& parameters, std::vector<at::Tensor> gradients)
      : CustomNode(parameters), gradients_(std::move(gradients)) {}

  [[nodiscard]] std::string name() const override { return "CompiledBackward"; }

  // The gradients are moved out, so that a parameter takes a tensor as its own instead of a copy.
  std::vector<at::Tensor> apply(std::vector<at::Tensor>&& of_loss) override {
    if (is_spent_) {
      throw Error(
          "CompiledModule: backward ran a second time through the loss of one training_step, whose gradients are "
          "computed once. Call training_step again.");
    }
    is_spent_ = true;
    std::vector<at::Tensor> gradients = std::move(gradients_);
    const at::Tensor& scale = of_loss[0];
    if (!scale.defined()) return std::vector<at::Tensor>(gradients.size());
    if (scale.item<double>() == 1.0) return gradients;
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) gradient.mul_(scale);
    }
    return gradients;
  }

  void release_variables() override { gradients_.clear(); }

 private:
  std::vector<at::Tensor> gradients_;
  bool is_spent_ = false;
};

}  // namespace

StepManifest read_step_manifest(const std::string& text, const std::string& path) {
  const std::string fix = ". Write the file again with this Levin's tools/compile_step.py.";
  try {
    return read_manifest(detail::parse_strictly<nlohmann::json>(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(path + ": its description is not complete: " + cut_text(error.what(), 200) + fix);
  } catch (const Error& error) {
    throw Error(path + ": its description cannot be used: " + error.what() + fix);
  }
}

void check_compiled_for(const StepManifest& manifest, const std::string& path, const std::string& cpuinfo) {
  const std::string again =
      " Compile it again with tools/compile_step.py and PyTorch " + torch_version() + " on this machine.";
  const auto refuse = [&](const std::string& what) { throw Error(path + " was compiled " + what + "." + again); };
  if (minor_version(manifest.torch) != minor_version(torch_version())) {
    refuse("by PyTorch " + cut_text(manifest.torch) + ", and this Levin runs LibTorch " + torch_version());
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

StepFile::StepFile(std::string path) : path_(std::move(path)) {
  if (!std::filesystem::is_regular_file(path_)) {
    throw Error(path_ + " is not a file. Write one with tools/compile_step.py (docs/compiled_steps.md).");
  }
  try {
    reader_ = std::make_unique<ArchiveReader>(path_);
  } catch (const std::exception& error) {
    throw Error(path_ + " is damaged, or not an archive of tools/compile_step.py: " + first_line_of(error));
  }
  if (!reader_->hasRecord("extra/levin.json")) {
    throw Error(path_ +
                " holds no compiled step. Write it with tools/compile_step.py; a model exported without a loss "
                "cannot be trained by CompiledModule.");
  }
  manifest_ = read_step_manifest(record("extra/levin.json"), path_);
}

StepFile::~StepFile() = default;

std::string StepFile::record(const std::string& name) const {
  try {
    const auto [data, size] = reader_->getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  } catch (const std::exception& error) {
    throw Error(path_ + ": " + name + " cannot be read, because the file is damaged: " + first_line_of(error));
  }
}

std::map<std::string, at::Tensor> StepFile::read_weights() const {
  const MemoryFile memory("levin weights", record("extra/weights.safetensors"));
  std::map<std::string, at::Tensor> weights;
  try {
    const SafetensorsFile file(memory.path());
    for (const SafetensorsEntry& entry : file.entries()) weights.emplace(entry.name, file.read(entry));
  } catch (const CheckpointError& error) {
    throw Error(path_ + ": its weights cannot be read: " + error.what());
  }
  for (const auto* tensors : {&manifest_.parameters, &manifest_.buffers, &manifest_.constants}) {
    for (const CompiledTensor& wanted : *tensors) {
      const auto found = weights.find(wanted.name);
      if (found == weights.end()) {
        throw Error(path_ + ": its weights lack \"" + cut_text(wanted.name) +
                    "\", which its description names. Write the file again with tools/compile_step.py.");
      }
      if (found->second.sizes() != at::IntArrayRef(wanted.shape) || found->second.scalar_type() != wanted.dtype) {
        throw Error(path_ + ": \"" + cut_text(wanted.name) + "\" has shape " + shape_text(found->second.sizes()) +
                    " in its weights and " + shape_text(wanted.shape) +
                    " in its description. Write the file again with tools/compile_step.py.");
      }
    }
  }
  return weights;
}

std::unique_ptr<CompiledLibrary> StepFile::load(const std::string& graph) const {
  MemoryFile memory("levin compiled step", record("data/aotinductor/" + graph + "/model.so"));
  try {
    auto library = std::make_unique<CompiledLibrary>(memory.path());
    // The loader knows libraries by their path, also after they are closed: another file must never have this one.
    memory.keep();
    return library;
  } catch (const std::exception& error) {
    throw Error(path_ + ": the system's loader cannot load the code of its " + graph +
                " graph: " + first_line_of(error) +
                ". A name of a library means that it is not installed here; a name that begins with "
                "aoti_torch, that LibTorch is of another version. Compile the step again on this machine.");
  }
}

void attach_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                      std::vector<at::Tensor> gradients) {
  add_result(make_graph_node<CompiledBackward>(parameters, std::move(gradients)), loss);
}

}  // namespace levin
