// Defines ArchiveReader of compiled_library.h, LibTorch's reader of PyTorch's zip archives (.pt2). Checked with
// LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
#pragma once

#include <caffe2/serialize/inline_container.h>
