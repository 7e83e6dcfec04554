// The classes of the part levin_downloads, for run files. core/process/parts.cpp lists the same names.
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/sets/mnist.h"

namespace levin {

LEVIN_PART(downloads) {
  auto& data = Registry<DataModule>::instance();
  data.add<FashionMnist>("FashionMnist", "Fashion-MNIST: 70,000 images of clothes in 10 classes, 28 x 28");
  data.add<Mnist>("Mnist", "MNIST: 70,000 images of handwritten digits, 28 x 28");
}

}  // namespace levin
