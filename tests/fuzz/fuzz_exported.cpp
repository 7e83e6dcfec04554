// libFuzzer target: an input is a .pt2 file of torch.export, or one of its JSON files within an otherwise good archive:
// the checksums of a zip would stop any other change. For any bytes, ExportedProgram loads them or throws
// Error, and what it loads runs forward and backward, or throws, without leaving the memory of its tensors: with inputs
// of the shapes that it declares and with a batch of a different size, in training and in evaluation mode.
//
// The first byte selects the kind of the rest: forge_program.h lists them.
#include <ATen/Parallel.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sum.h>

#include <cstdint>
#include <string>

#include "forge_program.h"
#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/core/options/error.h"
#include "levin/models/exported/exported_program.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 64 << 20;

uint64_t inputs = 0, jsons = 0, loaded = 0, ran = 0;

// LibTorch's errors are of several types; none of them is a finding.
void run_program(ExportedProgram& program, const std::vector<at::Tensor>& given) {
  try {
    const Budget budget;
    at::Tensor sum;
    for (const at::Tensor& output : program.forward(given)) {
      if (output.defined() && output.requires_grad()) sum = at::real(output).sum();
    }
    ++ran;
    if (sum.defined()) sum.backward();
  } catch (const std::exception&) {
  }
}

void run_in_all_ways(ExportedProgram& program) {
  const nlohmann::json model = program_model();
  run_program(program, declared_inputs(program, model, 0));
  run_program(program, declared_inputs(program, model, 2));
  program.eval();
  run_program(program, declared_inputs(program, model, 0));
}

}  // namespace

void run_one(std::string_view input) {
  ++inputs;
  if (write_program(input, program_operators())) ++jsons;
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  try {
    ExportedProgram program(program_path());
    ++loaded;
    expect(program.named_parameters().size() <= input.size() + 100, "there are no more weights than the file can hold");
    run_in_all_ways(program);
  } catch (const Error& error) {
    std::string message = error.what();
    expect(message.find(program_path()) != std::string::npos, "an error names the file", message);
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is missing has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "which nothing before it defines");
  }
}

void begin() {
  std::atexit([] {
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole, %lu run\n", inputs, jsons,
                 loaded, ran);
  });
}

}  // namespace levin::fuzz
