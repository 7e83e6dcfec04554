// What a program computes with its modules' weights. Internal.
#pragma once

#include <map>
#include <string>

#include "levin/core/weight_use.h"
#include "levin/models/exported/graph.h"

namespace levin::exported {

/// Of each parameter called "weight" that an embedding or a convolution of the outermost graph uses: which, by the
/// parameter's full name. An embedding that is also a matrix (tied weights) is an embedding.
[[nodiscard]] std::map<std::string, KnowsWeightUse::Known> weight_uses(const Program& program);

}  // namespace levin::exported
