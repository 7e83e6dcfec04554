// Defines ArchiveReader of compiled_library.h, LibTorch's reader of PyTorch's zip archives (.pt2). Internal.
#pragma once

#include <caffe2/serialize/inline_container.h>
