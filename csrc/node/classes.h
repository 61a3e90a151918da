// The addon's classes. Thin: they turn JavaScript values into the arguments of core and core's errors into JavaScript
// errors. State is per environment (a class's constructor data); nothing here is global.
#pragma once
#include <napi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/backends.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/plan.h"
#include "core/weights.h"

namespace ix::node {

// The native object behind an argument of class T; IX_INVALID_ARGUMENT for anything else.
template <class T>
T& unwrap(Napi::Value value) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&T::kTag))
    fail("IX_INVALID_ARGUMENT", "an argument is not a %s of this addon", T::kName);
  return *T::Unwrap(value.As<Napi::Object>());
}

// A number that counts something: whole, not negative, exact. Conversions of Node-API would turn NaN into 0.
inline uint64_t whole(Napi::Value value, const char* code, const char* what) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (!(number >= 0 && number <= 9007199254740991.0) || number != double(uint64_t(number)))
    fail(code, "%s is not a whole number", what);
  return uint64_t(number);
}

void register_device(Napi::Env env, Napi::Object exports);
void register_weights(Napi::Env env, Napi::Object exports);
void register_executor(Napi::Env env, Napi::Object exports);

class DeviceClass : public Napi::ObjectWrap<DeviceClass> {
 public:
  static constexpr napi_type_tag kTag = {0x3f0d6a4b91c27e58, 0xa85e13d7f64b209c};
  static constexpr const char* kName = "Device";
  explicit DeviceClass(const Napi::CallbackInfo& info);
  const std::shared_ptr<Device>& device() const;  // throws IX_DISPOSED after close()
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value num_threads(const Napi::CallbackInfo& info);
  Napi::Value info(const Napi::CallbackInfo& info);
  Napi::Value kernels(const Napi::CallbackInfo& info);
  Napi::Value layouts(const Napi::CallbackInfo& info);
  Napi::Value panel_bytes(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  std::shared_ptr<Device> device_;
};

class WeightsClass : public Napi::ObjectWrap<WeightsClass> {
 public:
  static constexpr napi_type_tag kTag = {0x7c41b92ed8053fa6, 0x16d9e07ab35c84f2};
  static constexpr const char* kName = "Weights";
  explicit WeightsClass(const Napi::CallbackInfo& info);
  ~WeightsClass() override;
  std::shared_ptr<const WeightSet> set() const;  // throws IX_INVALID_ARGUMENT before ready() has resolved
  static Napi::Function define(Napi::Env env);

 private:
  struct Load;
  Napi::Value ready(const Napi::CallbackInfo& info);
  Napi::Value progress(const Napi::CallbackInfo& info);
  void cancel(const Napi::CallbackInfo& info);
  void release(const Napi::CallbackInfo& info);
  std::shared_ptr<Load> load_;
};

class ExecutorClass : public Napi::ObjectWrap<ExecutorClass> {
 public:
  explicit ExecutorClass(const Napi::CallbackInfo& info);
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value memory_bytes(const Napi::CallbackInfo& info);
  Napi::Value submit(const Napi::CallbackInfo& info);
  Napi::Value wait(const Napi::CallbackInfo& info);
  Napi::Value trace(const Napi::CallbackInfo& info);
  void probe(const Napi::CallbackInfo& info);
  Napi::Value probed(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  Executor& executor() const;
  std::unique_ptr<Executor> executor_;
};

}  // namespace ix::node
