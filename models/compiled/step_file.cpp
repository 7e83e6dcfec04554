#include "levin/models/compiled/step_file.h"

#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <string_view>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace {

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

}  // namespace

CompiledLibrary::CompiledLibrary(std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner)
    : runner_(std::move(runner)) {}
CompiledLibrary::~CompiledLibrary() = default;

std::vector<at::Tensor> CompiledLibrary::run(const std::vector<at::Tensor>& inputs) {
  return runner_->run(inputs);
}

StepFile::StepFile(std::string path) : path_(std::move(path)) {
  if (!std::filesystem::is_regular_file(path_)) {
    throw Error(path_ + " is not a file. Write one with tools/compile_step.py (docs/compiled_steps.md).");
  }
  try {
    reader_ = std::make_unique<caffe2::serialize::PyTorchStreamReader>(path_);
  } catch (const std::exception& error) {
    throw Error(path_ + " is damaged, or no archive of tools/compile_step.py: " + first_line_of(error));
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
    auto runner = std::make_unique<torch::inductor::AOTIModelContainerRunnerCpu>(memory.path(), 1,
                                                                                 /*run_single_threaded=*/true);
    // The loader knows libraries by their path, also after they are closed: another file must never have this one.
    memory.keep();
    return std::make_unique<CompiledLibrary>(std::move(runner));
  } catch (const std::exception& error) {
    throw Error(path_ + ": the system's loader cannot load the code of its " + graph +
                " graph: " + first_line_of(error) +
                ". A name of a library means that it is not installed here; a name that begins with "
                "aoti_torch, that LibTorch is of another version. Compile the step again on this machine.");
  }
}

}  // namespace levin
