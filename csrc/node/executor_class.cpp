#include <algorithm>
#include <cstring>

#include "node/classes.h"
#include "node/js_error.h"

namespace ix::node {

ExecutorClass::ExecutorClass(const Napi::CallbackInfo& info) : Napi::ObjectWrap<ExecutorClass>(info) {
  guarded(info.Env(), [&] {
    const Napi::Uint8Array bytes = info[1].As<Napi::Uint8Array>();
    const Napi::Object options = info[3].As<Napi::Object>();
    const auto sizes = [&](const char* name) {
      std::vector<uint32_t> out;
      const Napi::Array list = options.Get(name).As<Napi::Array>();
      for (uint32_t i = 0; i < list.Length(); i++)
        out.push_back(uint32_t(std::min<uint64_t>(
            whole(list.Get(i), "IX_INVALID_ARGUMENT", "the number of a group's blocks"), INT32_MAX)));
      return out;
    };
    ExecutorOptions out;
    out.blocks = sizes("blocks");
    if (options.Has("hostSlots")) out.host_slots = sizes("hostSlots");
    out.checked = options.Get("checked").ToBoolean();
    executor_ = std::make_unique<Executor>(
        unwrap<DeviceClass>(info[0]).device(),
        std::make_shared<const Plan>(std::vector<uint8_t>(bytes.Data(), bytes.Data() + bytes.ByteLength())),
        unwrap<WeightsClass>(info[2]).set(), out);
  });
}

Executor& ExecutorClass::executor() const {
  if (!executor_) fail("IX_DISPOSED", "the executor was closed");
  return *executor_;
}

Napi::Value ExecutorClass::memory_bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), executor_ ? double(executor_->memory_bytes()) : 0);
}

Napi::Value ExecutorClass::submit(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const Napi::Object step = info[0].As<Napi::Object>();
    const Napi::Array dims = step.Get("dims").As<Napi::Array>();
    Napi::ArrayBuffer inputs = step.Get("inputs").As<Napi::ArrayBuffer>();
    const Napi::Int32Array commands = step.Get("commands").As<Napi::Int32Array>();
    const uint32_t num_commands = step.Get("numCommands").As<Napi::Number>().Uint32Value();
    if (inputs.ByteLength() < executor().plan().input_bytes || num_commands > commands.ElementLength())
      fail("IX_INVALID_ARGUMENT", "the step's buffers are too small");
    StepInput in{{},
                 static_cast<const uint8_t*>(inputs.Data()),
                 commands.Data(),
                 num_commands,
                 step.Get("wanted").As<Napi::Number>().Uint32Value()};
    for (uint32_t i = 0; i < IX_NUM_DIMS; i++) in.dims[i] = dims.Get(i).As<Napi::Number>().Uint32Value();
    return Napi::Number::New(info.Env(), double(executor().submit(in)));
  });
}

Napi::Value ExecutorClass::wait(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const uint64_t ticket = uint64_t(info[0].As<Napi::Number>().Int64Value());
    const Napi::Array arrays = info[1].As<Napi::Array>();
    executor().wait(ticket);
    Napi::Array rows = Napi::Array::New(info.Env(), arrays.Length());
    for (uint32_t i = 0; i < arrays.Length(); i++) {
      rows[i] = 0;
      const Napi::Value value = arrays.Get(i);
      if (!value.IsTypedArray()) continue;
      const Executor::Output output = executor().output(ticket, i);
      const Napi::TypedArray array = value.As<Napi::TypedArray>();
      const size_t bytes = size_t(output.rows) * output.columns * 4;
      if (array.ByteLength() < bytes)
        fail("IX_INVALID_ARGUMENT", "the array for output %u holds %zu bytes of %zu", i, array.ByteLength(), bytes);
      if (bytes) std::memcpy(static_cast<char*>(array.ArrayBuffer().Data()) + array.ByteOffset(), output.data, bytes);
      rows[i] = output.rows;
    }
    return rows;
  });
}

Napi::Value ExecutorClass::trace(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    executor().set_trace(true);
    const std::vector<uint64_t> ns = executor().trace();
    Napi::Array out = Napi::Array::New(info.Env(), ns.size());
    for (size_t i = 0; i < ns.size(); i++) out[uint32_t(i)] = double(ns[i]);
    return out;
  });
}

void ExecutorClass::probe(const Napi::CallbackInfo& info) {
  guarded(info.Env(), [&] { executor().set_probe(info[0].As<Napi::Number>().Int32Value()); });
}

Napi::Value ExecutorClass::probed(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Napi::Array out = Napi::Array::New(info.Env());
    for (const Executor::Probe& probe : executor().probed()) {
      Napi::Object o = Napi::Object::New(info.Env());
      o["rows"] = probe.rows;
      o["columns"] = probe.columns;
      Napi::Float32Array data = Napi::Float32Array::New(info.Env(), probe.data.size() / 4);
      if (!probe.data.empty()) std::memcpy(data.Data(), probe.data.data(), probe.data.size());
      o["data"] = data;
      out[out.Length()] = o;
    }
    return out;
  });
}

void ExecutorClass::close(const Napi::CallbackInfo&) { executor_.reset(); }

Napi::Function ExecutorClass::define(Napi::Env env) {
  return DefineClass(env, "Executor",
                     {
                         InstanceAccessor<&ExecutorClass::memory_bytes>("memoryBytes"),
                         InstanceMethod<&ExecutorClass::submit>("submit"),
                         InstanceMethod<&ExecutorClass::wait>("wait"),
                         InstanceMethod<&ExecutorClass::trace>("trace"),
                         InstanceMethod<&ExecutorClass::probe>("probe"),
                         InstanceMethod<&ExecutorClass::probed>("probed"),
                         InstanceMethod<&ExecutorClass::close>("close"),
                     });
}

void register_executor(Napi::Env env, Napi::Object exports) { exports["Executor"] = ExecutorClass::define(env); }

}  // namespace ix::node
