// Forks 320 processes, each of which computes a function of MKL twice, on two threads that a matrix product has woken.
// Fails if the results of a process differ. Each process makes a module first; with an argument none does, and a few
// processes differ.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <memory>

#include "levin/trainer/lightning_module.h"

namespace vector_math_program {
namespace {

constexpr int kProcesses = 320;

bool first_call_is_right(int number) {
  constexpr std::array<at::Tensor (*)(const at::Tensor&), 4> kFunctions{at::erf, at::tanh, at::exp, at::sqrt};
  const auto function = kFunctions[number % kFunctions.size()];
  at::set_num_threads(2);
  const at::Tensor values = at::linspace(0.05, 0.95, 1 << 16, at::kFloat);
  for (int k = 0; k < 3; ++k) (void)values.view({256, 256}).mm(values.view({256, 256}));
  const at::Tensor first = function(values);
  return first.equal(function(values));
}

}  // namespace

int run_program(int argc, char**) {
  const bool with_module = argc == 1;
  int failed = 0;
  for (int number = 0; number < kProcesses; ++number) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto module = with_module ? std::make_unique<levin::LightningModule>() : nullptr;
      ::_exit(first_call_is_right(number) ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  std::cout << failed << " of " << kProcesses
            << " processes computed a function differently when they first called it\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace vector_math_program
