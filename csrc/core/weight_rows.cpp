#include "core/weight_rows.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace ix {
namespace {

TensorRows open_tensor(const CheckpointTensor& tensor, const std::vector<platform::File>& files,
                       std::optional<uint32_t> seed) {
  const char* name = tensor.name.c_str();
  const Dtype* dtype = find_dtype(tensor.dtype);
  if (!dtype) fail("IX_UNSUPPORTED_FORMAT", "tensor %s has type %s, which has no kernels", name, tensor.dtype.c_str());
  if (!seed && tensor.file >= files.size())
    fail("IX_MODEL_FORMAT", "tensor %s names file %u of %zu", name, tensor.file, files.size());
  uint64_t elements = 1;
  for (uint64_t d : tensor.dims)
    if (d == 0 || __builtin_mul_overflow(elements, d, &elements))
      fail("IX_MODEL_FORMAT", "tensor %s has an impossible shape", name);
  const uint64_t columns = tensor.dims.size() > 1 ? tensor.dims.back() : 1;
  if (tensor.dims.size() > 1 && columns % dtype->block_elements)
    fail("IX_MODEL_FORMAT", "tensor %s: rows of %llu are no multiple of the block of %s", name,
         (unsigned long long)columns, tensor.dtype.c_str());
  if (tensor.dims.size() <= 1 && dtype->block_elements != 1)
    fail("IX_MODEL_FORMAT", "tensor %s: a vector cannot have type %s", name, tensor.dtype.c_str());
  const uint64_t row_bytes = columns / dtype->block_elements * dtype->block_bytes, rows = elements / columns;
  if (seed) return {nullptr, RandomTensor(*seed, tensor.name, tensor.dims, *dtype), 0, dtype, rows, columns, row_bytes};
  const platform::File& file = files[tensor.file];
  uint64_t bytes;
  if (__builtin_mul_overflow(rows, row_bytes, &bytes) || bytes != tensor.bytes || tensor.offset > file.size() ||
      file.size() - tensor.offset < bytes)
    fail("IX_MODEL_FORMAT", "tensor %s lies outside of %s", name, file.path().c_str());
  return {&file, std::nullopt, tensor.offset, dtype, rows, columns, row_bytes};
}

// A matrix as one vector, or as one row, where its type allows: norms with a vector per head are stored so.
TensorRows as_rows(TensorRows tensor, uint64_t columns, bool transposed) {
  const uint64_t elements = tensor.rows * tensor.columns;
  const bool flat = columns == 1 || columns == elements;
  if (transposed || !flat || tensor.columns == columns || tensor.dtype->block_elements != 1) return tensor;
  tensor.rows = elements / columns;
  tensor.columns = columns;
  tensor.row_bytes = columns * tensor.dtype->block_bytes;
  return tensor;
}

}  // namespace

void TensorRows::read(char* out, uint64_t first, uint64_t count) const {
  if (random) return random->fill(out, first, count);
  const uint64_t block = dtype->block_elements, bytes = dtype->block_bytes;
  file->read(out, offset + first / block * bytes, count / block * bytes);
}

void TensorRows::read_turned(char* out, uint64_t first, uint64_t count, RowBuffers& buffers) const {
  const size_t element = dtype->block_bytes;
  buffers.turned.resize(rows * count * element);
  char* const stored = buffers.turned.data();
  for (uint64_t r = 0; r < rows; r++) read(stored + r * count * element, r * columns + first, count);
  for (uint64_t c = 0; c < count; c++)
    for (uint64_t r = 0; r < rows; r++)
      std::memcpy(out + (c * rows + r) * element, stored + (r * count + c) * element, element);
}

TensorTable::TensorTable(const Checkpoint& checkpoint) : files_(checkpoint.files.size()) {
  for (size_t i = 0; i < files_.size(); i++) files_[i].open(checkpoint.files[i]);
  for (const CheckpointTensor& tensor : checkpoint.tensors)
    tensors_.emplace(tensor.name, open_tensor(tensor, files_, checkpoint.seed));
}

const TensorRows* TensorTable::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

WeightRows::WeightRows(const PlanWeight& weight, const Dtype& dtype, const TensorTable& tensors)
    : columns_(weight.columns()), dtype_(&dtype), row_bytes_(columns_ / dtype.block_elements * dtype.block_bytes) {
  uint64_t next = 0;
  const std::string name(weight.name);
  for (const PlanSource& plan : weight.sources) {
    Run run{&plan, std::nullopt, next};
    next += plan.row_count;
    if (!plan.tensor.empty()) {
      const std::string from(plan.tensor);
      const TensorRows* found = tensors.find(plan.tensor);
      if (!found) fail("IX_MODEL_FORMAT", "tensor %s is missing", from.c_str());
      const TensorRows& t = run.tensor.emplace(as_rows(*found, columns_, plan.transposed));
      const uint64_t rows = plan.transposed ? t.columns : t.rows, columns = plan.transposed ? t.rows : t.columns;
      const bool converts = plan.add_one || plan.scale != 1 || t.dtype != &dtype;
      if (columns != columns_ || plan.row_start > rows || rows - plan.row_start < plan.row_count)
        fail("IX_MODEL_FORMAT", "tensor %s does not have the shape that weight %s needs", from.c_str(), name.c_str());
      if (converts && dtype.name != "f32")
        fail("IX_PLAN", "weight %s: only f32 layouts can be converted to while loading", name.c_str());
      if (plan.rope_heads && rows % (2 * uint64_t(plan.rope_heads)))
        fail("IX_MODEL_FORMAT", "tensor %s does not divide into %u heads", from.c_str(), plan.rope_heads);
      if (plan.transposed && t.dtype->block_elements != 1)
        fail("IX_UNSUPPORTED_FORMAT", "tensor %s: a block format cannot be transposed", from.c_str());
    }
    runs_.push_back(std::move(run));
  }
  if (next != weight.rows())
    fail("IX_PLAN", "the load program of weight %s gives %llu rows of %llu", name.c_str(), (unsigned long long)next,
         (unsigned long long)weight.rows());
}

void WeightRows::read(char* out, uint64_t first, uint64_t count, RowBuffers& buffers) const {
  for (uint64_t done = 0; done < count;) {
    const Run& run = *std::prev(std::upper_bound(runs_.begin(), runs_.end(), first + done,
                                                 [](uint64_t row, const Run& r) { return row < r.first; }));
    const uint64_t start = first + done - run.first;
    const uint64_t rows = std::min(count - done, run.plan->row_count - start);
    read_run(run, start, rows, out + done * row_bytes_, buffers);
    done += rows;
  }
}

// Rows were permuted per head as llama.cpp does: row (h, half, i) of the architecture is row (h, i, half) of the file.
uint64_t WeightRows::Run::stored_row(uint64_t row) const {
  const uint64_t wanted = plan->row_start + row;
  if (!plan->rope_heads) return wanted;
  const uint64_t width = (plan->transposed ? tensor->columns : tensor->rows) / plan->rope_heads, head = wanted / width,
                 r = wanted % width;
  return head * width + r % (width / 2) * 2 + r / (width / 2);
}

void WeightRows::read_run(const Run& run, uint64_t start, uint64_t rows, char* out, RowBuffers& buffers) const {
  if (!run.tensor) {
    std::memset(out, 0, rows * row_bytes_);
    return;
  }
  const TensorRows& tensor = *run.tensor;
  const PlanSource& plan = *run.plan;
  const bool verbatim = tensor.dtype == dtype_ && !plan.add_one && plan.scale == 1;
  const uint64_t at_once = plan.rope_heads ? 1 : rows;  // rows that lie together in the tensor
  for (uint64_t r = 0; r < rows; r += at_once, out += at_once * row_bytes_) {
    const uint64_t row = run.stored_row(start + r), count = at_once * columns_;
    if (!verbatim) buffers.stored.resize(count / tensor.dtype->block_elements * tensor.dtype->block_bytes);
    char* const stored = verbatim ? out : buffers.stored.data();
    if (plan.transposed)
      tensor.read_turned(stored, row, at_once, buffers);
    else
      tensor.read(stored, row * columns_, count);
    if (verbatim) continue;
    float* values = reinterpret_cast<float*>(out);
    row_to_f32(*tensor.dtype, stored, count, values);
    if (plan.scale != 1 || plan.add_one)
      for (uint64_t i = 0; i < count; i++) values[i] = values[i] * plan.scale + (plan.add_one ? 1.0f : 0.0f);
  }
}

}  // namespace ix
