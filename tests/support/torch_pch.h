// Precompiled once for all tests that need the whole of LibTorch.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>
