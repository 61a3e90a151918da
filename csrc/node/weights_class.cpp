#include <algorithm>

#include "node/classes.h"
#include "node/js_error.h"

namespace ix::node {

// What the loading thread and the object share: the object may be collected, or its environment end, while loading goes
// on.
struct WeightsClass::Load {
  std::shared_ptr<Device> device;
  std::shared_ptr<const Plan> plan;
  Checkpoint checkpoint;
  std::string key;
  LoadProgress progress;
  std::shared_ptr<const WeightSet> set;
};

namespace {

// `work` packs on a libuv thread; `done` runs on the object's own, before the promise settles.
class LoadWorker : public Napi::AsyncWorker {
 public:
  LoadWorker(Napi::Env env, std::function<void()> work, std::function<void()> done)
      : Napi::AsyncWorker(env, "inferx.load"),
        work_(std::move(work)),
        done_(std::move(done)),
        deferred_(Napi::Promise::Deferred::New(env)) {}
  Napi::Promise promise() const { return deferred_.Promise(); }

 private:
  void Execute() override {
    try {
      work_();
    } catch (const Error& error) {
      error_.emplace(error);
      SetError(error.what());
    } catch (const std::bad_alloc&) {
      error_.emplace("IX_OUT_OF_MEMORY", "out of memory while loading weights");
      SetError("out of memory");
    }
  }
  void OnOK() override {
    done_();
    deferred_.Resolve(Env().Undefined());
  }
  void OnError(const Napi::Error& error) override {
    deferred_.Reject(error_ ? to_js(Env(), *error_).Value() : error.Value());
  }

  std::function<void()> work_, done_;
  Napi::Promise::Deferred deferred_;
  std::optional<Error> error_;
};

// `origin`: paths of files, or the seed of values that lie in none.
Checkpoint read_checkpoint(const Napi::Array& tensors, const Napi::Object& origin) {
  Checkpoint out;
  if (origin.IsArray()) {
    const Napi::Array files = origin.As<Napi::Array>();
    for (uint32_t i = 0; i < files.Length(); i++) out.files.push_back(files.Get(i).As<Napi::String>());
  } else {
    out.seed = uint32_t(whole(origin.Get("seed"), "IX_INVALID_ARGUMENT", "the seed"));
  }
  for (uint32_t i = 0; i < tensors.Length(); i++) {
    const Napi::HandleScope scope(tensors.Env());
    const Napi::Object t = tensors.Get(i).As<Napi::Object>();
    const auto number = [](Napi::Value value) {
      return whole(value, "IX_MODEL_FORMAT", "a number in the table of tensors");
    };
    CheckpointTensor tensor{t.Get("name").As<Napi::String>(),
                            t.Get("dtype").As<Napi::String>(),
                            uint32_t(std::min<uint64_t>(number(t.Get("file")), UINT32_MAX)),
                            number(t.Get("offset")),
                            number(t.Get("bytes")),
                            {}};
    const Napi::Array dims = t.Get("dims").As<Napi::Array>();
    for (uint32_t d = 0; d < dims.Length(); d++) tensor.dims.push_back(number(dims.Get(d)));
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace

WeightsClass::WeightsClass(const Napi::CallbackInfo& info) : Napi::ObjectWrap<WeightsClass>(info) {
  guarded(info.Env(), [&] {
    const Napi::Uint8Array plan = info[1].As<Napi::Uint8Array>();
    load_ = std::make_shared<Load>();
    load_->device = unwrap<DeviceClass>(info[0]).device();
    load_->plan = std::make_shared<const Plan>(std::vector<uint8_t>(plan.Data(), plan.Data() + plan.ByteLength()));
    load_->checkpoint = read_checkpoint(info[2].As<Napi::Array>(), info[3].As<Napi::Object>());
    load_->key = info[4].As<Napi::String>();
    info.This().As<Napi::Object>().TypeTag(&kTag);
  });
}

WeightsClass::~WeightsClass() {
  if (load_) load_->progress.cancel = true;
}

std::shared_ptr<const WeightSet> WeightsClass::set() const {
  if (!load_->set) fail("IX_INVALID_ARGUMENT", "the weights are not loaded yet");
  return load_->set;
}

Napi::Value WeightsClass::ready(const Napi::CallbackInfo& info) {
  auto load = load_;
  auto set = std::make_shared<std::shared_ptr<const WeightSet>>();
  // From here on the device is the loading thread's, and then the set's: the object keeps none open.
  std::shared_ptr<Device> device = std::move(load->device);
  if (!device) throw to_js(info.Env(), Error("IX_INVALID_ARGUMENT", "the weights were loaded or released before"));
  auto* worker = new LoadWorker(
      info.Env(),
      [load, set, device = std::move(device)] {
        *set = acquire_weights(load->key, device, load->plan->weights, load->checkpoint, load->progress);
      },
      [load, set] { load->set = *set; });
  worker->Queue();
  return worker->promise();
}

Napi::Value WeightsClass::progress(const Napi::CallbackInfo& info) {
  Napi::Array out = Napi::Array::New(info.Env(), 2);
  out[0u] = double(load_->progress.loaded.load());
  out[1u] = double(load_->progress.total.load());
  return out;
}

void WeightsClass::cancel(const Napi::CallbackInfo&) { load_->progress.cancel = true; }

void WeightsClass::release(const Napi::CallbackInfo&) {
  load_->device.reset();
  load_->set.reset();
}

Napi::Function WeightsClass::define(Napi::Env env) {
  return DefineClass(env, "Weights",
                     {
                         InstanceMethod<&WeightsClass::ready>("ready"),
                         InstanceMethod<&WeightsClass::progress>("progress"),
                         InstanceMethod<&WeightsClass::cancel>("cancel"),
                         InstanceMethod<&WeightsClass::release>("release"),
                     });
}

void register_weights(Napi::Env env, Napi::Object exports) { exports["Weights"] = WeightsClass::define(env); }

}  // namespace ix::node
