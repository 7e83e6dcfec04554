// The classes of the part levin_streams, for run files. core/process/parts.cpp lists the same names.
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/streams/stream_data.h"

namespace levin {

LEVIN_PART(streams) {
  auto& data = Registry<DataModule>::instance();
  data.add<StreamData>(
      "StreamData", "data in shards: MosaicML, LitData, WebDataset and JSON lines, in folders, on web servers and S3");
}

}  // namespace levin
