// Precompiled for the library's files that work on modules; see LevinSources.cmake.
#pragma once
#include <torch/nn/module.h>

#include "standard_pch.h"
