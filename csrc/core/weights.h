// Weights on a device: read from checkpoint files, or made up, and packed as a plan's load program says, once per
// process. Files are read, never mapped: a file that is truncated while it is read gives an error, not a signal.
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
#include "core/weight_rows.h"

namespace ix {

struct LoadProgress {
  std::atomic<uint64_t> loaded{0}, total{0};  // bytes of packed weights
  std::atomic<bool> cancel{false};
};

// The packed weights of one plan. Immutable once loaded.
class WeightSet {
 public:
  WeightSet(std::shared_ptr<Device> device, const std::vector<PlanWeight>& weights, const Checkpoint& checkpoint,
            LoadProgress& progress);
  void* data(uint32_t weight) const { return memory_.data() + offsets_[weight]; }
  uint64_t bytes() const { return bytes_; }

 private:
  DeviceMemory memory_;  // one piece for all: hundreds of reservations on a GPU take as long as the copies
  std::vector<uint64_t> offsets_;
  uint64_t bytes_ = 0;  // without what lies between weights
};

// Loads a set, or shares the one that this process has or is loading under the same key (file identities, load program,
// device). Throws what loading throws; a caller that waits for another one's load tries itself when that one was
// cancelled.
std::shared_ptr<const WeightSet> acquire_weights(const std::string& key, std::shared_ptr<Device> device,
                                                 const std::vector<PlanWeight>& weights, const Checkpoint& checkpoint,
                                                 LoadProgress& progress);

}  // namespace ix
