// Precompiled once for the other tests. torch/torch.h is much slower even then: 8 s for each unit that includes it.
#pragma once
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>
