#include "levin/core/same_bits.h"

#include <cstring>

namespace levin {

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined()) return false;
  if (!one.defined()) return true;
  if (one.sizes() != other.sizes() || one.scalar_type() != other.scalar_type()) return false;
  const at::Tensor left = one.detach().contiguous(), right = other.detach().contiguous();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

}  // namespace levin
