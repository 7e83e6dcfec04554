// Precompiled once for all tests that need all of LibTorch.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>
