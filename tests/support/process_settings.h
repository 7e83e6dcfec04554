// What belongs to the program, and not to a guest in its process.
//
//   const ProcessSettings before;
//   …
//   expect_unchanged(before);
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace levin::test {

inline size_t open_sockets() {
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code code;
    if (std::filesystem::read_symlink(file.path(), code).string().starts_with("socket:")) ++count;
  }
  return count;
}

/// The settings at the time of its creation.
struct ProcessSettings {
  std::vector<std::pair<void*, int>> handlers = {};
  std::set<std::string> environment = {};
  std::string locale = std::setlocale(LC_ALL, nullptr);
  int threads = at::get_num_threads();
  caffe2::TypeMeta dtype = c10::get_default_dtype();
  at::Tensor random = at::detail::getDefaultCPUGenerator().get_state().clone();
  bool deterministic = at::globalContext().deterministicAlgorithms();
  bool benchmark = at::globalContext().benchmarkCuDNN();
  at::Float32MatmulPrecision matmul_precision = at::globalContext().float32MatmulPrecision();
  c10::WarningHandler* warnings = c10::WarningUtils::get_warning_handler();
  size_t sockets = open_sockets();  // the program may have a store of its own

  ProcessSettings() {
    for (int number = 1; number <= SIGRTMAX; ++number) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) != 0) continue;
      const bool is_function = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
      handlers.emplace_back(reinterpret_cast<void*>(action.sa_handler), is_function ? action.sa_flags : 0);
    }
    for (char** variable = environ; *variable != nullptr; ++variable) environment.insert(*variable);
  }
};

inline void expect_unchanged(const ProcessSettings& before) {
  const ProcessSettings now;
  EXPECT_EQ(now.handlers, before.handlers);
  EXPECT_EQ(now.environment, before.environment);
  EXPECT_EQ(now.locale, before.locale);
  EXPECT_EQ(now.threads, before.threads);
  EXPECT_EQ(now.dtype, before.dtype);
  EXPECT_TRUE(at::equal(now.random, before.random));
  EXPECT_EQ(now.deterministic, before.deterministic);
  EXPECT_EQ(now.benchmark, before.benchmark);
  EXPECT_EQ(now.matmul_precision, before.matmul_precision);
  EXPECT_EQ(now.warnings, before.warnings);
  EXPECT_EQ(now.sockets, before.sockets);
}

}  // namespace levin::test
