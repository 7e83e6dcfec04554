// libFuzzer target: an input is a program of torch.export (forge_program.h lists the kinds, 'o' chooses among the
// operators that Levin translates), which export_onnx writes as a file of ONNX. For any program, the file is written or
// the export throws; a file that was written is valid and complete, and onnxruntime computes from it what the program
// computes, also for a batch of a different size.
//
// The second byte selects the version of ONNX's operators, and whether the batch is fixed. onnx_reader.py loads and
// runs the files; where onnxruntime is not installed, they are written only.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/rand_like.h>
#include <c10/core/InferenceMode.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>

#include "forge_program.h"
#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/options/error.h"
#include "levin/models/onnx/operators.h"
#include "levin/models/onnx_export.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 64 << 20;

uint64_t inputs = 0, forged = 0, written = 0, loaded = 0, computed = 0;

const std::vector<c10::OperatorHandle>& translated_operators() {
  static const std::vector<c10::OperatorHandle> some = [] {
    std::vector<c10::OperatorHandle> found;
    for (const c10::OperatorHandle& op : program_operators()) {
      if (onnx::translations().contains(onnx::functional_name(op)) || onnx::is_composite(op)) found.push_back(op);
    }
    return found;
  }();
  return some;
}

// The process of onnx_reader.py: it gets the path of a folder, and answers with a line.
class Reader {
 public:
  Reader() {
    int to[2], from[2];
    expect(::pipe2(to, O_CLOEXEC) == 0 && ::pipe2(from, O_CLOEXEC) == 0, "there are pipes");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::string script = test::source_dir() + "/tests/fuzz/onnx_reader.py", python = "python3", option = "-B";
    char* const arguments[] = {python.data(), option.data(), script.data(), nullptr};
    expect(::posix_spawnp(&pid_, "python3", &actions, nullptr, arguments, environ) == 0, "python3 can be started");
    posix_spawn_file_actions_destroy(&actions);
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    is_there_ = line() == "ready";
    if (!is_there_) std::fprintf(stderr, "levin: onnxruntime is not installed: files are written, and not loaded\n");
  }
  [[nodiscard]] bool is_there() const { return is_there_; }
  [[nodiscard]] std::string ask(const std::string& folder) {
    std::fprintf(to_, "%s\n", folder.c_str());
    std::fflush(to_);
    const std::string answer = line();
    expect(!answer.empty(), "a file does not end its reader", folder);
    return answer;
  }

 private:
  std::string line() {
    std::string text;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) text += static_cast<char>(c);
    return text;
  }

  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  bool is_there_ = false;
};

Reader& reader() {
  static auto* const started = new Reader;  // ends when its input does, with this process
  return *started;
}

// Numbers that tell elements apart; whole numbers stay 1, because they may be indices.
std::vector<at::Tensor> drawn(std::vector<at::Tensor> tensors) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  for (at::Tensor& tensor : tensors) {
    if (tensor.is_floating_point()) tensor = at::rand_like(tensor, generator).add_(0.25);
  }
  return tensors;
}

// What the program computes of a batch, for onnx_reader.py: "0/input_1", "0/output_0". False if it cannot, as with a
// batch of a different size than it was made for.
bool add_batch(ExportedProgram& program, const std::vector<at::Tensor>& given, const std::string& number,
               std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> results, changed;  // a program may write to its inputs
  for (const at::Tensor& each : given) changed.push_back(each.clone());
  try {
    const Budget budget;
    const c10::InferenceMode no_gradients;
    results = program.forward(changed);
  } catch (const std::exception&) {
    return false;
  }
  for (size_t k = 0; k < given.size(); ++k) tensors[number + "/input_" + std::to_string(k)] = given[k].contiguous();
  for (size_t k = 0; k < results.size(); ++k) {
    tensors[number + "/output_" + std::to_string(k)] = results[k].contiguous();
  }
  return true;
}

std::vector<std::string> numbered(const std::string& name, size_t count) {
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) names.push_back(name + "_" + std::to_string(k));
  return names;
}

void write_and_load(ExportedProgram& program, uint8_t choice) {
  static const test::TemporaryFolder folder;
  const nlohmann::json model = program_model();
  const std::vector<at::Tensor> given = drawn(declared_inputs(program, model, 0));
  const auto names = numbered("input", given.size());
  OnnxExample example;
  for (size_t k = 0; k < given.size(); ++k) example.emplace_back(names[k], given[k]);
  OnnxOptions options{.opset = kOldestOpset + choice % 6,
                      .fixed_batch = choice / 6 % 4 == 0,
                      .external_data = choice / 24 % 4 == 0,
                      .output_names = numbered("output", program.output_names().size())};
  const std::string path = folder / "model.onnx";
  for (const char* name : {"model.onnx", "model.onnx.data"}) std::filesystem::remove(folder / name);
  program.eval();
  std::map<std::string, at::Tensor> tensors;
  if (!add_batch(program, given, "0", tensors)) return;  // also of programs that take long
  const auto forward = [&](const std::vector<at::Tensor>& batch) { return program.forward(batch); };
  try {
    (void)export_onnx(path, program, forward, example, options);
  } catch (const c10::Error&) {
    return;  // LibTorch's, from a program that cannot run
  } catch (const Error&) {
    expect(!std::filesystem::exists(path), "an export that fails leaves no file");
    throw;
  }
  ++written;
  if (!reader().is_there()) return;
  if (!options.fixed_batch) (void)add_batch(program, drawn(declared_inputs(program, model, 2)), "1", tensors);
  write_safetensors(folder / "batches.safetensors", tensors);
  const std::string answer = reader().ask(folder.path());
  expect(answer.starts_with("computed") || answer.starts_with("loaded"),
         "a file of ONNX computes what the program does", answer);
  ++loaded;
  if (answer.starts_with("computed")) ++computed;
}

}  // namespace

void run_one(std::string_view input) {
  ++inputs;
  if (input.size() < 2) return;
  const std::string program_input = input[0] + std::string(input.substr(2));
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  if (write_program(program_input, translated_operators())) ++forged;
  try {
    ExportedProgram program(program_path());
    write_and_load(program, static_cast<uint8_t>(input[1]));
  } catch (const Error& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is not translated has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "no translation");
  }
}

void begin() {
  std::atexit([] {
    std::fprintf(stderr,
                 "levin: %lu inputs, %lu past the header's checksum, %lu read whole, %lu loaded, %lu computed\n",
                 inputs, forged, written, loaded, computed);
  });
}

}  // namespace levin::fuzz
