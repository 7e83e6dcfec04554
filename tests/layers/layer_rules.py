# The table of docs/architecture.md: which folder may include which, and who alone may include certain headers.
# check_layers.py reads it; a new folder needs a line here.

SIBLINGS = ["data", "optim", "precision", "strategies", "loggers", "profilers", "recompute"]

# folder: the folders it may include, besides itself. "." holds levin.h and builtins.cpp.
MAY_INCLUDE = {
    "core": [],
    **{sibling: ["core"] for sibling in SIBLINGS},
    "trainer": ["core", *SIBLINGS],
    "callbacks": ["core", *SIBLINGS, "trainer"],
    "cuda": ["core", "strategies"],
    ".": ["core", *SIBLINGS, "trainer", "callbacks"],
    "cli": ["core", *SIBLINGS, "trainer", "callbacks", "."],
}

# Headers with this ending are precompiled, named in a CMakeLists.txt, included by nobody and not installed.
PRECOMPILED = "_pch.h"

# (regular expression over the included path, who may: predicate over "folder/file", the rule in words)
RESERVED = [
    (r"^torch/(torch|all|extension)\.h$", lambda file: file.lstrip("./") == "levin.h",
     "no file of the library but the umbrella levin.h includes the whole of LibTorch: it costs 20 s and 1.3 GB a file"),
    (r"^(torch/csrc/distributed|gloo)/", lambda file: file.startswith(("strategies/", "cuda/")),
     "only strategies/ includes c10d, and cuda/, which makes its NCCL groups"),
    (r"^(c10/cuda|ATen/cuda|cuda_runtime|nccl)", lambda file: file.startswith("cuda/"),
     "only cuda/, a library of its own, includes CUDA's headers"),
    (r"^yaml-cpp/", lambda file: file.startswith("cli/"),
     "only cli/ includes yaml-cpp"),
    (r"^torch/nn(\.h$|/)", lambda file: file.endswith((".cpp", PRECOMPILED)) or file == "trainer/lightning_module.h",
     "among the public headers only trainer/lightning_module.h includes torch/nn"),
    (r"^(torch|ATen|c10|caffe2)/(?!core/Tensor\.h$)", lambda file: not file.startswith("core/"),
     "core/ includes no LibTorch but ATen/core/Tensor.h"),
]

MOST_LINES = 400

# Files that may be longer, each with the reason.
LONG_FILES = {
    "tests/trainer/mixed_precision_test.cpp": "one behaviour of a scaled loss after another, over one set of helpers",
    "tests/trainer/trainer_test.cpp": "one behaviour of the Trainer after another, over one set of helpers",
    "tests/trainer/optimization_test.cpp": "a table of equivalences (N micro-batches = one batch) over one set of helpers",
}
