// Precompiled for the library's files that work on modules; see LevinSources.cmake.
#pragma once
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>
