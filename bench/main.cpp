// bin/bench_NAME is a link to this program; the name selects the benchmark.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "programs.h"

namespace {

struct Program {
  const char* name;
  int (*run)(int argc, char** argv);
};

constexpr Program kPrograms[] = {
    {"checkpoint", bench::checkpoint::run_program},
    {"compile", bench::compile::run_program},
#ifdef LEVIN_BENCH_GPT
    {"ddp", bench::ddp::run_program},
    {"gpt", bench::gpt::run_program},
    {"plan", bench::plan::run_program},
    {"recompute", bench::recompute::run_program},
    {"reinforcement", bench::reinforcement::run_program},
#endif
    {"devices", bench::devices::run_program},
    {"freed_memory", bench::freed_memory::run_program},
    {"images", bench::images::run_program},
    {"loader", bench::loader::run_program},
    {"logging", bench::logging::run_program},
    {"lora", bench::lora::run_program},
    {"metrics", bench::metrics::run_program},
    {"optimizers", bench::optimizers::run_program},
    {"overhead", bench::overhead::run_program},
    {"recorded", bench::recorded::run_program},
    {"startup", bench::startup::run_program},
    {"streams", bench::streams::run_program},
    {"token_batches", bench::token_batches::run_program},
#ifdef LEVIN_BENCH_GPT
    {"thousand_layers", bench::thousand_layers::run_program},
    {"xlmr", bench::xlmr::run_program},
#endif
};

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argv[0];
  const std::string name = path.substr(path.rfind('/') + 1);
  // Comparisons run on the CPU even if there is a GPU; "gpu" requests a GPU.
  bool gpu = false;
  for (int i = 1; i < argc; ++i) gpu = gpu || std::string(argv[i]) == "gpu";
  if (!gpu) ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (const Program& program : kPrograms) {
    if (name == std::string("bench_") + program.name) return program.run(argc, argv);
  }
  std::fprintf(stderr, "%s: run it as bench_NAME.\n", name.c_str());
  return 2;
}
