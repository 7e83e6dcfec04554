// A zip archive whose files are stored uncompressed, as PyTorch writes it (.pt2). Every size and offset is checked
// against the file's length before it is used, every content against its checksum. Internal.
//
// The format: PKWARE's APPNOTE.TXT, 4.3.7 (local header), 4.3.12 (central directory), 4.3.14 and 4.3.16 (its
// end), 4.5.3 (64-bit sizes).
//
// Note [Why not LibTorch's reader of zip archives]
// LibTorch 2.11 has a reader (caffe2::serialize::PyTorchStreamReader), which compiled/step_file.h uses for files whose
// native code the user trusts anyway. It does not check what a file of a stranger claims. Measured with
// tests/models/data/mlp.pt2: it returns a weight with a flipped byte (its build ignores checksums), two files of one
// name, and 1,000 names that share one local header, and for a file of 1 MiB with a deflated entry it allocates 1 GiB
// in 22 s. A guard in front of it would have to read the same list of files with its 64-bit fields, follow the local
// headers and compute the checksums: all of ZipArchive but the loop around pread. So ZipArchive stays.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/models/exported/graph.h"
#include "levin/models/exported/json_view.h"

namespace levin::exported {

class ZipArchive {
 public:
  /// Reads the list of files; throws Error naming the path and what is wrong.
  explicit ZipArchive(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// In alphabetical order, without the folder that PyTorch puts around all of them.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(const std::string& name) const { return files_.contains(name); }
  /// Returns the size of a file in bytes. Throws Error if the archive has no file of this name.
  [[nodiscard]] uint64_t size_of(const std::string& name) const { return file(name).bytes; }

  /// The whole file; throws Error if there is none, if it has more than `max_bytes`, or if it is damaged.
  [[nodiscard]] std::string read(const std::string& name, uint64_t max_bytes) const;
  /// The same into memory of size_of(name) bytes.
  void read_into(const std::string& name, void* memory) const;

 private:
  struct File {
    uint64_t header = 0;  // offset of its local header
    uint64_t bytes = 0;
    uint32_t checksum = 0;
  };

  [[noreturn]] void refuse(const std::string& what) const;
  [[nodiscard]] const File& file(const std::string& name) const;
  void read_at(uint64_t offset, void* memory, uint64_t bytes) const;
  [[nodiscard]] std::string text_at(uint64_t offset, uint64_t bytes) const;
  void find_directory();
  void read_directory();
  void add_file(const std::string& name, const File& file, uint32_t flags, uint32_t method);
  void leave_out_common_folder();

  std::string path_;
  FileDescriptor descriptor_;
  uint64_t length_ = 0;
  uint64_t directory_ = 0;  // offset and bytes of the central directory
  uint64_t directory_bytes_ = 0;
  std::map<std::string, File> files_ = {};
};

// Weights and constants of a .pt2 file: the bytes of each storage, and a list of the tensors in it.

struct StoredTensor {
  std::string name;
  at::Tensor tensor;
  bool requires_grad = false;
};

/// The tensors of `list` (data/weights/model_weights_config.json) in the file's order, their storages in `folder` of
/// the archive. Names with the same place in the same storage get one tensor; other tensors of a storage share its
/// memory. Throws Error if a tensor reaches over its storage, or would need Python's pickle.
[[nodiscard]] std::vector<StoredTensor> read_tensors(const ZipArchive& archive, const std::string& folder,
                                                     const JsonView& list);

// A .pt2 file as a whole: its program, its weights, its constants.

// Note [Two graphs in one file]
// tools/export_model.py records a model in training mode and in evaluation mode, and writes both programs into one
// archive, as torch.export's package does: training as the model "model", evaluation as "evaluation". They have one set
// of weights, which are read once. A file of torch.export.save has one program, which does not determine what the
// other mode computes.

/// What the model computes in evaluation mode.
struct EvaluationContents {
  Program program;
  std::vector<StoredTensor> constants;
};

struct Contents {
  Program program;
  std::vector<StoredTensor> weights;    // parameters and persistent buffers
  std::vector<StoredTensor> constants;  // other buffers, and tensors in the code
  c10::Device exported_on = c10::Device(c10::kCPU);
  bool has_evaluation = false;                        // the file determines what evaluation computes
  std::optional<EvaluationContents> evaluation = {};  // nothing where it is the same
};

/// Throws Error with the file and what to save instead.
[[nodiscard]] Contents read_archive(const std::string& path);

}  // namespace levin::exported
