// The version of LibTorch that Levin is compiled against, and the sentence for features that an old one lacks. Code
// outside of this folder has no conditions on versions; where possible, code in it asks whether a declaration exists.
//
// The files of this folder are for LibTorch 2.6 to 2.15. Checks run programs with 2.6, 2.11 and 2.15; suites of tests
// were run with 2.7, 2.9 and 2.13; with 2.8, 2.10, 2.12 and 2.14 nothing (docs/compatibility.md). Static assertions
// stop a build where a version has changed what they depend on.
#pragma once

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <string>

#define LEVIN_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

static_assert(LEVIN_TORCH_AT_LEAST(2, 6), "Levin needs LibTorch 2.6 or newer.");

namespace levin {

/// Returns LibTorch's version, such as "2.11.0".
[[nodiscard]] inline std::string torch_version() {
  return TORCH_VERSION;
}

/// Returns "WHAT needs LibTorch MAJOR.MINOR or newer; this is Levin with LibTorch 2.11.0."
[[nodiscard]] std::string needs_torch_text(const std::string& what, int major, int minor);

/// Throws Error with needs_torch_text(): this LibTorch lacks what the feature is built on.
[[noreturn]] void report_old_torch(const std::string& what, int major, int minor);

}  // namespace levin
