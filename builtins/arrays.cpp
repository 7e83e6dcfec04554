// The classes of the part levin_arrays, for run files. core/process/parts.cpp lists the same names.
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/sets/hdf5_data.h"
#include "levin/data/sets/npy_data.h"

namespace levin {

LEVIN_PART(arrays) {
  auto& data = Registry<DataModule>::instance();
  data.add<Hdf5Data>("Hdf5Data", "samples from the data sets of an HDF5 file");
  data.add<NpyData>("NpyData", "samples from NumPy arrays in .npy files, memory-mapped");
}

}  // namespace levin
