#include <string_view>

#include "node/classes.h"
#include "node/js_error.h"

namespace ix::node {

static Napi::Object info_object(Napi::Env env, const char* kind, int index, const ix_device_info& info) {
  Napi::Object o = Napi::Object::New(env);
  o["kind"] = kind;
  o["index"] = index;
  o["name"] = static_cast<const char*>(info.name);
  o["arch"] = static_cast<const char*>(info.arch);
  o["memoryBytes"] = double(info.memory_bytes);
  o["freeBytes"] = double(info.free_bytes);
  return o;
}

// devices(cudaLibrary): what can be used, and for what cannot, why.
static Napi::Value devices(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string library = info[0].As<Napi::String>();
  Napi::Array usable = Napi::Array::New(env), unusable = Napi::Array::New(env);
  for (const char* kind : {"cpu", "cuda"}) {
    try {
      const ix_backend* backend = find_backend(kind, library);
      ix_error error{};
      const int count = backend->device_count(&error);
      if (count < 0) raise(error);
      for (int i = 0; i < count; i++) {
        ix_device_info device{};
        if (backend->device_info(i, &device, &error) != 0) raise(error);
        usable[usable.Length()] = info_object(env, kind, i, device);
      }
    } catch (const Error& error) {
      Napi::Object o = Napi::Object::New(env);
      o["kind"] = kind;
      o["code"] = error.code();
      o["reason"] = error.what();
      unusable[unusable.Length()] = o;
    }
  }
  Napi::Object out = Napi::Object::New(env);
  out["usable"] = usable;
  out["unusable"] = unusable;
  return out;
}

DeviceClass::DeviceClass(const Napi::CallbackInfo& info) : Napi::ObjectWrap<DeviceClass>(info) {
  guarded(info.Env(), [&] {
    const ix_backend* backend = find_backend(info[0].As<Napi::String>(), info[3].As<Napi::String>());
    device_ = std::make_shared<Device>(backend, info[1].As<Napi::Number>().Int32Value(),
                                       info[2].As<Napi::Number>().Int32Value());
    info.This().As<Napi::Object>().TypeTag(&kTag);
  });
}

const std::shared_ptr<Device>& DeviceClass::device() const {
  if (!device_) fail("IX_DISPOSED", "the device was closed");
  return device_;
}

void DeviceClass::close(const Napi::CallbackInfo&) { device_.reset(); }

Napi::Value DeviceClass::num_threads(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::Number::New(info.Env(), device()->num_threads()); });
}

Napi::Value DeviceClass::info(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    return info_object(info.Env(), device()->backend().name, device()->index(), device()->info());
  });
}

Napi::Value DeviceClass::kernels(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    uint32_t count = 0;
    const ix_kernel* const* kernels = device()->backend().kernels(device()->handle(), &count);
    Napi::Array out = Napi::Array::New(info.Env());
    for (uint32_t i = 0; i < count; i++) {
      if (std::string_view(kernels[i]->tags).starts_with("for=")) continue;  // of the executor, of tests: in no plan
      Napi::Object o = Napi::Object::New(info.Env());
      o["signature"] = kernels[i]->signature;
      o["tags"] = kernels[i]->tags;
      o["source"] = kernels[i]->source;
      out[out.Length()] = o;
    }
    return out;
  });
}

Napi::Value DeviceClass::layouts(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    uint32_t count = 0;
    const ix_layout* const* layouts = device()->backend().layouts(device()->handle(), &count);
    Napi::Array out = Napi::Array::New(info.Env(), count);
    for (uint32_t i = 0; i < count; i++) {
      Napi::Object o = Napi::Object::New(info.Env());
      o["name"] = layouts[i]->name;
      o["source"] = layouts[i]->source;
      o["panelRows"] = layouts[i]->panel_rows;
      out[i] = o;
    }
    return out;
  });
}

Napi::Value DeviceClass::panel_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const std::string name = info[0].As<Napi::String>();
    const ix_layout* layout = device()->find_layout(name);
    if (!layout) fail("IX_INVALID_ARGUMENT", "there is no layout %s", name.c_str());
    return Napi::Number::New(info.Env(), double(layout->panel_bytes(info[1].As<Napi::Number>().Int64Value())));
  });
}

Napi::Function DeviceClass::define(Napi::Env env) {
  return DefineClass(env, "Device",
                     {
                         InstanceAccessor<&DeviceClass::num_threads>("numThreads"),
                         InstanceMethod<&DeviceClass::info>("info"),
                         InstanceMethod<&DeviceClass::kernels>("kernels"),
                         InstanceMethod<&DeviceClass::layouts>("layouts"),
                         InstanceMethod<&DeviceClass::panel_bytes>("panelBytes"),
                         InstanceMethod<&DeviceClass::close>("close"),
                     });
}

void register_device(Napi::Env env, Napi::Object exports) {
  exports["devices"] = Napi::Function::New(env, devices, "devices");
  exports["Device"] = DeviceClass::define(env);
}

}  // namespace ix::node
