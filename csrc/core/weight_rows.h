// The rows of a plan's weight as its load program puts them together: from files, or made up. Not here: packing them,
// and getting them to a device (weights.h).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/plan.h"
#include "core/platform.h"
#include "core/random_weights.h"

namespace ix {

struct CheckpointTensor {
  std::string name, dtype;
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  std::vector<uint64_t> dims;
};

struct Checkpoint {
  std::vector<std::string> files;
  std::vector<CheckpointTensor> tensors;
  std::optional<uint32_t> seed;  // set: the tensors lie in no file, their values are random_weights.h's
};

// What reading takes, kept from call to call.
struct RowBuffers {
  std::vector<char> stored, turned;
};

// A tensor whose range was checked against its file, or that is made up, seen as rows.
struct TensorRows {
  const platform::File* file;
  std::optional<RandomTensor> random;
  uint64_t offset;
  const Dtype* dtype;
  uint64_t rows, columns, row_bytes;

  // Elements [first, first + count) of all rows together, as they are stored.
  void read(char* out, uint64_t first, uint64_t count) const;
  // Columns [first, first + count) as rows.
  void read_turned(char* out, uint64_t first, uint64_t count, RowBuffers& buffers) const;
};

class TensorTable {
 public:
  // Opens the files. Throws IX_FILE_*, IX_MODEL_FORMAT, IX_UNSUPPORTED_FORMAT.
  explicit TensorTable(const Checkpoint& checkpoint);
  const TensorRows* find(std::string_view name) const;

 private:
  std::vector<platform::File> files_;
  std::map<std::string_view, TensorRows> tensors_;
};

class WeightRows {
 public:
  // Rows in the type `dtype`. Binds the sources to tensors, checking that rows and columns fit. `weight` and `tensors`
  // outlive it.
  WeightRows(const PlanWeight& weight, const Dtype& dtype, const TensorTable& tensors);
  uint64_t row_bytes() const { return row_bytes_; }
  // Rows [first, first + count), row_bytes() each. From several threads at once.
  void read(char* out, uint64_t first, uint64_t count, RowBuffers& buffers) const;

 private:
  // A source of the weight, bound to its tensor.
  struct Run {
    const PlanSource* plan;
    std::optional<TensorRows> tensor;  // none: rows of zeros
    uint64_t first;                    // row of the weight at which the run starts
    uint64_t stored_row(uint64_t row) const;
  };
  void read_run(const Run& run, uint64_t start, uint64_t rows, char* out, RowBuffers& buffers) const;

  std::vector<Run> runs_;
  uint64_t columns_;
  const Dtype* dtype_;
  uint64_t row_bytes_;
};

}  // namespace ix
