# The table of docs/architecture.md: which folder may include which, and who alone may include certain headers.
# check_layers.py reads it; a new folder needs a line here.

# Siblings stand beside one another: none includes another. A list of a sibling's subfolders is in their own order.
SIBLINGS = {
    "checkpoint": [],
    "data": ["loading", "tokenizers", "text", "files", "images", "sets"],
    "loggers": [],
    "metrics": [],
    "optim": [],
    "precision": [],
    "profilers": [],
    "recompute": [],
    "strategies": ["tape", "launch", "process", "device"],
}
TRAINER = ["trainer", "trainer/plan", "trainer/run", "trainer/step", "trainer/state", "trainer/loops"]
MODELS = ["models", "models/compiled", "models/exported", "models/huggingface", "models/onnx"]

BELOW_TRAINER = ["core", "dispatch", *SIBLINGS, *(f"{sibling}/{part}" for sibling, parts in SIBLINGS.items() for part in parts)]

# folder: the folders it may include, besides itself. "." holds levin.h and builtins.cpp. A folder's own line is about the
# files that stand in it directly.
MAY_INCLUDE = {
    "core": [],
    "yaml": ["core"],  # for inference/ and cli/
    "dispatch": ["core"],
    **{sibling: ["core"] for sibling in SIBLINGS},
    "recompute": ["core", "dispatch"],
    "adapters": ["core", "dispatch", "checkpoint"],  # beside trainer/, below callbacks/ and models/
    "data/loading": ["core", "data"],
    "data/tokenizers": ["core"],
    "data/text": ["core", "data", "data/loading", "data/tokenizers"],
    "data/files": ["core", "data", "data/loading"],
    "data/images": ["core", "data"],
    "data/sets": ["core", "data", "data/loading", "data/tokenizers", "data/text", "data/files",
                  "data/images"],
    "strategies/launch": ["core", "strategies"],
    "strategies/process": ["core", "dispatch", "strategies", "strategies/tape", "strategies/launch"],
    "strategies/tape": ["core", "dispatch"],
    "strategies/device": ["core", "dispatch", "strategies", "strategies/tape"],
    **{folder: [*BELOW_TRAINER, *TRAINER[:k]] for k, folder in enumerate(TRAINER)},
    "models/compiled": ["core", "checkpoint"],
    "models/exported": ["core", "dispatch", "checkpoint"],
    "models/onnx": ["core", "dispatch"],
    "models/huggingface": ["core", "dispatch", "checkpoint", "adapters", "data", *(f"data/{part}" for part in SIBLINGS["data"])],
    "models": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan", *MODELS[1:]],
    "callbacks": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan"],
    "inference": [*BELOW_TRAINER, "yaml", "adapters", "trainer", *MODELS],
    "cuda": ["core", "strategies", "strategies/process"],
    ".": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan", "callbacks", *MODELS, "inference"],
    "cli/config": [*BELOW_TRAINER, "yaml", *TRAINER, "callbacks", *MODELS, "."],
    "cli/runs": [*BELOW_TRAINER, "yaml", "cli/config"],
    "cli/sweep": [*BELOW_TRAINER, "yaml", "cli/config", "cli/runs"],
    "cli/commands": [*BELOW_TRAINER, "yaml", "adapters", *TRAINER, "callbacks", *MODELS, ".", "cli/config", "cli/runs", "cli/sweep"],
    "cli": [*BELOW_TRAINER, *TRAINER, "callbacks", *MODELS, ".", "cli/config", "cli/runs", "cli/commands"],
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
    (r"^yaml-cpp/", lambda file: file.startswith("yaml/"),
     "only yaml/ includes yaml-cpp"),
    (r"^torch/nn(\.h$|/)", lambda file: file.endswith((".cpp", PRECOMPILED)) or file == "trainer/lightning_module.h"
     or file.startswith("models/"),
     "among the public headers only trainer/lightning_module.h and those of models/ include torch/nn"),
    (r"^(torch|ATen|c10|caffe2)/(?!core/Tensor\.h$)", lambda file: not file.startswith("core/"),
     "core/ includes no LibTorch but ATen/core/Tensor.h"),
]

MOST_LINES = 600

# Files that may be longer, each with the reason.
LONG_FILES = {
}
