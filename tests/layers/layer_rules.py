# The table of docs/architecture.md: which folder may include which, and who alone may include certain headers.
# check_layers.py reads it; a new folder needs a line here.

# Siblings do not include each other. Each list is a sibling's subfolders, in the order in which they may include.
SIBLINGS = {
    "checkpoint": [],
    "data": ["loading", "tokenizers", "text", "files", "images", "sets", "columns", "streams"],
    "loggers": [],
    "metrics": [],
    "optim": [],
    "precision": [],
    "profilers": [],
    "recompute": [],
    "strategies": ["tape", "launch", "process", "device"],
}
TRAINER = ["trainer", "trainer/plan", "trainer/step", "trainer/run", "trainer/state", "trainer/loops"]
# The bodies of the public classes are next to their headers, and may include everything of trainer/: they form a unit
# above its folders.
BODIES = {f"trainer/{name}.cpp" for name in ("fabric", "lightning_module", "measured_metrics", "predict_outputs",
                                             "trainer", "trainer_actions", "trial_runs")}
MODELS = ["models", "models/compiled", "models/exported", "models/huggingface", "models/onnx"]

CORE = ["core/options", "core/files", "core/process", "core/storage", "core"]

BELOW_TRAINER = [*CORE, "libtorch", *SIBLINGS, *(f"{sibling}/{part}" for sibling, parts in SIBLINGS.items() for part in parts)]

# folder: the folders it may include, besides itself. "." holds levin.h and train.h. A folder's own line is about the
# files directly in it.
MAY_INCLUDE = {
    "core/options": [],
    "core/files": ["core/options"],
    "core/process": ["core/options", "core/files"],
    "core/storage": CORE[:3],
    "core": CORE[:4],
    "yaml": CORE,  # for inference/ and cli/
    "libtorch": CORE,
    **{sibling: CORE for sibling in SIBLINGS},
    "checkpoint": [*CORE, "libtorch"],
    "optim": [*CORE, "libtorch"],
    "profilers": [*CORE, "libtorch"],
    "recompute": [*CORE, "libtorch"],
    "adapters": [*CORE, "libtorch", "checkpoint"],  # a sibling of trainer/, below callbacks/ and models/
    "data/loading": [*CORE, "data"],
    "data/tokenizers": CORE,
    "data/text": [*CORE, "data", "data/loading", "data/tokenizers"],
    "data/files": [*CORE, "data", "data/loading"],
    "data/images": [*CORE, "data"],
    "data/sets": [*CORE, "data", "data/loading", "data/tokenizers", "data/text", "data/files",
                  "data/images"],
    "data/streams": [*CORE, "core/storage", "data", "data/loading", "data/files", "data/images", "data/sets"],
    "data/columns": [*CORE, "data", "data/loading", "data/files", "data/sets"],
    "strategies": [*CORE, "libtorch", "strategies/tape"],
    "strategies/launch": [*CORE, "strategies"],
    "strategies/process": [*CORE, "libtorch", "strategies", "strategies/tape", "strategies/launch"],
    "strategies/tape": [*CORE, "libtorch"],
    "strategies/device": [*CORE, "libtorch", "strategies", "strategies/tape"],
    **{folder: [*BELOW_TRAINER, *TRAINER[:k]] for k, folder in enumerate(TRAINER)},
    "models/compiled": [*CORE, "libtorch", "checkpoint"],
    "models/exported": [*CORE, "libtorch", "checkpoint"],
    "models/onnx": [*CORE, "libtorch"],
    "models/huggingface": [*CORE, "libtorch", "checkpoint", "adapters", "data", *(f"data/{part}" for part in SIBLINGS["data"])],
    "models": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan", *MODELS[1:]],
    "callbacks": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan"],
    "inference": [*BELOW_TRAINER, "yaml", "adapters", "trainer", *MODELS],
    "cuda": [*CORE, "libtorch", "strategies", "strategies/process"],
    "builtins": [*BELOW_TRAINER, "trainer", "callbacks", "models"],
    ".": [*BELOW_TRAINER, "adapters", "trainer", "trainer/plan", "callbacks", *MODELS, "inference"],
    "cli/config": [*BELOW_TRAINER, "yaml", *TRAINER, "callbacks", *MODELS, "."],
    "cli/runs": [*BELOW_TRAINER, "yaml", "cli/config"],
    "cli/sweep": [*BELOW_TRAINER, "yaml", "cli/config", "cli/runs"],
    "cli/commands": [*BELOW_TRAINER, "yaml", "adapters", *TRAINER, "callbacks", *MODELS, ".", "cli/config", "cli/runs", "cli/sweep"],
    "c": [*BELOW_TRAINER, *TRAINER, "cli/config"],
    "cli/new_project/src": [".", "cli"],  # what `levin new` writes: a user's program
    "cli": [*BELOW_TRAINER, *TRAINER, "callbacks", *MODELS, ".", "cli/config", "cli/runs", "cli/commands"],
}

# The parts of the library (cmake/LevinParts.cmake), and those whose headers each may include besides core's. A file's part is
# written in its folder's CMakeLists.txt: levin_sources(GROUP PART images …).
PARTS = {"core": [], "arrays": [], "images": [], "text": [], "downloads": [],
         "streams": ["images", "downloads"], "models": ["text"], "tracking": ["downloads"],
         "tools": ["models", "text", "tracking", "downloads", "streams", "images"], "c": []}

# Folders (the files directly in them), and units, NAME.h and NAME.cpp, that reach no header of LibTorch through any chain of
# includes: their tests compile in seconds (levin_test(… PLAIN) in tests/CMakeLists.txt).
TORCH_FREE = ["yaml", "cli/runs", "cli/sweep",
              *(f"cli/config/{unit}" for unit in ("arguments", "commented_yaml", "lightning_class", "merge", "old_options",
                                                  "run_config", "text_layout")),
              *(f"cli/commands/{unit}" for unit in ("completion", "convert", "embedded_files", "help_text", "list_runs",
                                                    "make_report", "new_project", "plan_devices", "report", "schema",
                                                    "step_model", "submit_job", "top", "top_view"))]

# Headers with this ending are precompiled, named in a CMakeLists.txt, included by nobody and not installed.
PRECOMPILED = "_pch.h"

# The parts of torch/csrc that PyTorch's tutorials of C++ extensions and process groups use.
PUBLIC_CSRC = [r"autograd/(autograd|custom_function)\.h$",
               r"distributed/c10d/(ProcessGroup|ProcessGroupNCCL|PrefixStore|Store|TCPStore|Work)\.hpp$"]

def is_umbrella(file):
    return file.lstrip("./") == "levin.h"


# (regular expression over the included path, who may: predicate over "folder/file", the rule in words)
RESERVED = [
    (r"^torch/(torch|all|extension)\.h$", lambda file: False,
     "no file of the library includes the whole of LibTorch: it costs 20 s and 1.3 GB a file"),
    (r"^(torch/csrc/distributed|gloo)/", lambda file: file.startswith(("strategies/", "cuda/", "libtorch/")),
     "only strategies/ and libtorch/ include c10d, and cuda/, which makes its NCCL groups"),
    (r"^(c10/cuda|ATen/cuda|cuda_runtime|nccl)", lambda file: file.startswith(("cuda/", "libtorch/cuda_")),
     "only cuda/, a library of its own, includes CUDA's headers, and libtorch/cuda_*.h, which it includes"),
    (r"^(torch/csrc/(?!" + "|".join(PUBLIC_CSRC) + r")|caffe2/"
     r"|c10/core/(CachingDeviceAllocator|CPUAllocator|impl/(?!LocalDispatchKeySet\.h$))|ATen/core/dispatch/(?!Dispatcher\.h$)"
     r"|ATen/core/boxing/|ATen/DeviceAccelerator|ATen/core/CachingHostAllocator"
     r"|ATen/(detail|native)/|ATen/(EmptyTensor|TensorIterator|ThreadLocalState)|c10/core/AutogradState"
     r"|ATen/ops/(\w+_(native|ops|meta|dispatch)|_has_compatible_shallow_copy_type)\.h$)",
     lambda file: file.startswith("libtorch/"),
     "only libtorch/ includes headers of LibTorch that are not its public interface or differ between versions"),
    (r"^levin/libtorch/borrowed_keys\.h$", lambda file: file.startswith("libtorch/"),
     "only libtorch/ uses dispatch keys that LibTorch keeps for others"),
    (r"^torch/library\.h$", lambda file: file.startswith("libtorch/"),
     "only libtorch/ registers kernels with LibTorch's dispatcher"),
    (r"^torch/(headeronly/)?version\.h", lambda file: file.startswith("libtorch/") or is_umbrella(file),
     "only libtorch/ asks for LibTorch's version; levin.h includes it for users"),
    (r"^yaml-cpp/", lambda file: file.startswith("yaml/"),
     "only yaml/ includes yaml-cpp"),
    (r"^torch/nn(\.h$|/)", lambda file: file.endswith((".cpp", PRECOMPILED)) or file == "trainer/lightning_module.h"
     or file.startswith("models/") or is_umbrella(file),
     "among the public headers only levin.h, trainer/lightning_module.h and the headers of models/ include torch/nn"),
    (r"^(torch|ATen|c10|caffe2)/(?!core/(Tensor|ATen_fwd)\.h$)", lambda file: not file.startswith("core/"),
     "core/ includes no LibTorch but ATen/core/Tensor.h and ATen/core/ATen_fwd.h"),
]

# Members of TensorImpl and StorageImpl that replace what a tensor or its storage holds, or that differ between versions.
MEMBERS = (r"(->|\.)(set_data_ptr\w*|set_nbytes|shallow_copy_\w+|(set_)?version_counter|set_sizes_\w+|set_storage\w*"
           r"|(is|set)_wrapped_number|[gs]et_backend_meta\w*|unsafe(Set|Release|_set|_release)\w*)\(")

# Names of LibTorch's that headers of libtorch/ or public ones declare, which only libtorch/ uses. docs/architecture.md names
# the ones in private namespaces that everyone may use.
RESERVED_NAMES = (r"\bDispatchKey::(DeferredInit|Fake|TESTING_ONLY_)|\bredispatchBoxed\b|\bc10d::(Reducer|Logger)\b"
                  r"|\btorch::autograd::(Node|Edge|edge_list|Engine|SavedVariable|collect_next_edges|profiler|impl)\b"
                  r"|\btorch::profiler::|\bc10::(Get|Set)\w*CPUAllocator|\bCUDACachingAllocator::attach|\bimpl::VirtualGuardImpl\b"
                  r"|\b(at|c10|torch)::(detail|impl|internal|native|_ops)::(?!(create|getDefault)CPUGenerator\b"
                  r"|(Exclude|Include)DispatchKeyGuard\b|Generic(List|Dict)\b)|\bat::(cpu|meta|composite\w+)::"
                  r"|\bat::(_has_compatible_shallow_copy_type|ThreadLocalState)|\bc10::AutogradState\b|" + MEMBERS)

MOST_LINES = 600

# Files that may be longer, each with the reason.
LONG_FILES = {
}
