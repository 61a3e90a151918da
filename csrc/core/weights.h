// Weights on a device: read from checkpoint files and packed as a plan's load program says, once per process.
// Files are read, never mapped: a file that is truncated while it is read gives an error, not a signal.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/backends.h"
#include "core/error.h"
#include "core/plan.h"
#include "core/platform.h"

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
};

struct LoadProgress {
  std::atomic<uint64_t> loaded{0}, total{0};  // bytes of packed weights
  std::atomic<bool> cancel{false};
};

// The packed weights of one plan. Immutable once loaded.
class WeightSet {
 public:
  WeightSet(std::shared_ptr<Device> device, const Plan& plan, const Checkpoint& checkpoint, LoadProgress& progress);
  void* data(uint32_t weight) const { return memory_[weight].data(); }
  uint64_t bytes() const;

 private:
  std::vector<DeviceMemory> memory_;
};

// Loads a set, or shares the one that this process has or is loading under the same key (file identities, load program,
// device). Throws what loading throws; a caller that waits for another one's load tries itself when that one was
// cancelled.
std::shared_ptr<const WeightSet> acquire_weights(const std::string& key, std::shared_ptr<Device> device,
                                                 const Plan& plan, const Checkpoint& checkpoint,
                                                 LoadProgress& progress);

}  // namespace ix
