// N-API classes of the text layer: argument checks and conversions only. No state outside of the objects.
#include "node/tokenizer_class.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node/js_error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace ix::node {
namespace {

constexpr napi_type_tag kTokenizerTag = {0x1a7c9e54d2f04b36, 0x9b0e6f38c5a1d472};
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

[[noreturn]] void bad_argument(const char* what, const char* wanted) {
  fail("IX_INVALID_ARGUMENT", "%s: expected %s", what, wanted);
}

// UTF-8 of a string (lone surrogates become U+FFFD), or the bytes of a Uint8Array.
std::string text_argument(Napi::Value value, const char* what) {
  if (value.IsString()) return value.As<Napi::String>().Utf8Value();
  if (value.IsTypedArray() && value.As<Napi::TypedArray>().TypedArrayType() == napi_uint8_array) {
    const auto bytes = value.As<Napi::Uint8Array>();
    return {reinterpret_cast<const char*>(bytes.Data()), bytes.ByteLength()};
  }
  bad_argument(what, "a string or a Uint8Array");
}

std::string string_argument(Napi::Value value, const char* what) {
  if (!value.IsString()) bad_argument(what, "a string");
  return value.As<Napi::String>().Utf8Value();
}

bool flag_argument(Napi::Value value, const char* what) {
  if (!value.IsBoolean()) bad_argument(what, "true or false");
  return value.As<Napi::Boolean>();
}

Napi::Object object_argument(Napi::Value value, const char* what) {
  if (!value.IsObject()) bad_argument(what, "an object");
  return value.As<Napi::Object>();
}

Napi::Int32Array ids_argument(Napi::Value value) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array)
    bad_argument("ids", "an Int32Array");
  return value.As<Napi::Int32Array>();
}

template <class Read>  // read(value, key) when the member is there
void member(Napi::Object object, const char* key, Read&& read) {
  const Napi::Value value = object.Get(key);
  if (!value.IsUndefined() && !value.IsNull()) read(value, key);
}

std::vector<std::string> strings_argument(Napi::Value value, const char* what) {
  if (!value.IsArray()) bad_argument(what, "an array of strings");
  const auto array = value.As<Napi::Array>();
  std::vector<std::string> out;
  out.reserve(array.Length());
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    out.push_back(string_argument(array.Get(i), what));
  }
  return out;
}

TokenizerConfig read_config(Napi::Value value) {
  TokenizerConfig config;
  if (value.IsUndefined()) return config;
  const Napi::Object object = object_argument(value, "config");
  member(object, "bosToken", [&](Napi::Value v, const char* key) { config.bos_token = string_argument(v, key); });
  member(object, "eosToken", [&](Napi::Value v, const char* key) { config.eos_token = string_argument(v, key); });
  member(object, "addBos", [&](Napi::Value v, const char* key) { config.add_bos = flag_argument(v, key); });
  member(object, "addEos", [&](Napi::Value v, const char* key) { config.add_eos = flag_argument(v, key); });
  return config;
}

VocabSpec read_vocab(Napi::Object object) {
  VocabSpec spec;
  spec.model = string_argument(object.Get("model"), "model");
  spec.tokens = strings_argument(object.Get("tokens"), "tokens");
  member(object, "pre", [&](Napi::Value v, const char* key) { spec.pre = string_argument(v, key); });
  member(object, "merges", [&](Napi::Value v, const char* key) { spec.merges = strings_argument(v, key); });
  member(object, "scores", [&](Napi::Value v, const char* key) {
    if (!v.IsTypedArray() || v.As<Napi::TypedArray>().TypedArrayType() != napi_float32_array)
      bad_argument(key, "a Float32Array");
    const auto array = v.As<Napi::Float32Array>();
    spec.scores.assign(array.Data(), array.Data() + array.ElementLength());
  });
  member(object, "types", [&](Napi::Value v, const char* key) {
    if (!v.IsTypedArray() || v.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array)
      bad_argument(key, "an Int32Array");
    const auto array = v.As<Napi::Int32Array>();
    spec.types.assign(array.Data(), array.Data() + array.ElementLength());
  });
  const auto id = [&](const char* name, int64_t& target) {
    member(object, name, [&](Napi::Value v, const char* key) {
      if (!v.IsNumber()) bad_argument(key, "a token id");
      target = v.As<Napi::Number>().Int64Value();
    });
  };
  id("bos", spec.bos);
  id("eos", spec.eos);
  id("unk", spec.unk);
  member(object, "addBos", [&](Napi::Value v, const char* key) { spec.add_bos = flag_argument(v, key); });
  member(object, "addEos", [&](Napi::Value v, const char* key) { spec.add_eos = flag_argument(v, key); });
  member(object, "addSpacePrefix",
         [&](Napi::Value v, const char* key) { spec.add_space_prefix = flag_argument(v, key); });
  member(object, "removeExtraWhitespaces",
         [&](Napi::Value v, const char* key) { spec.remove_extra_whitespaces = flag_argument(v, key); });
  member(object, "charsmap", [&](Napi::Value v, const char* key) { spec.charsmap = text_argument(v, key); });
  return spec;
}

Napi::Int32Array to_array(Napi::Env env, const std::vector<int32_t>& ids) {
  Napi::Int32Array out = Napi::Int32Array::New(env, ids.size());
  std::copy(ids.begin(), ids.end(), out.Data());
  return out;
}

StreamOptions read_stream_options(Napi::Value value) {
  StreamOptions options;
  if (value.IsUndefined()) return options;
  const Napi::Object object = object_argument(value, "options");
  member(object, "stop", [&](Napi::Value v, const char* key) { options.stop = strings_argument(v, key); });
  member(object, "includeStop", [&](Napi::Value v, const char* key) { options.include_stop = flag_argument(v, key); });
  member(object, "keepSpecial", [&](Napi::Value v, const char* key) { options.keep_special = flag_argument(v, key); });
  member(object, "continuation", [&](Napi::Value v, const char* key) { options.continuation = flag_argument(v, key); });
  return options;
}

// [{text, parseSpecial}, ...]
std::vector<TextSegment> segments_argument(Napi::Value value) {
  if (!value.IsArray()) bad_argument("segments", "an array");
  const auto array = value.As<Napi::Array>();
  std::vector<TextSegment> out;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    const Napi::Object segment = object_argument(array.Get(i), "segment");
    out.push_back(
        {text_argument(segment.Get("text"), "text"), flag_argument(segment.Get("parseSpecial"), "parseSpecial")});
  }
  return out;
}

// Tokenizers that other threads of the process may open by number, as long as one of their objects lives.
class SharedTokenizers {
 public:
  static SharedTokenizers& get() {
    static SharedTokenizers shared;
    return shared;
  }
  uint32_t add(const TokenizerPtr& tokenizer) {
    const std::lock_guard lock(mutex_);
    std::erase_if(by_handle_, [](const auto& entry) { return entry.second.expired(); });
    for (const auto& [handle, known] : by_handle_) {
      if (known.lock() == tokenizer) return handle;
    }
    by_handle_.emplace(++last_, tokenizer);
    return last_;
  }
  TokenizerPtr open(double handle) {
    const std::lock_guard lock(mutex_);
    const auto found =
        handle > 0 && handle <= last_ ? by_handle_.find(static_cast<uint32_t>(handle)) : by_handle_.end();
    TokenizerPtr tokenizer = found == by_handle_.end() ? nullptr : found->second.lock();
    if (tokenizer == nullptr) fail("IX_DISPOSED", "the shared tokenizer %g is gone", handle);
    return tokenizer;
  }

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::weak_ptr<const Tokenizer>> by_handle_;
  uint32_t last_ = 0;
};

// One encode on the pool; the text is copied, the tokenizer kept alive.
class EncodeWork : public Napi::AsyncWorker {
 public:
  EncodeWork(Napi::Env env, TokenizerPtr tokenizer, std::vector<TextSegment> segments, bool add_special)
      : AsyncWorker(env, "inferx:encode"),
        deferred_(env),
        tokenizer_(std::move(tokenizer)),
        segments_(std::move(segments)),
        add_special_(add_special) {}
  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  void Execute() override {
    try {
      ids_ = tokenizer_->encode(segments_, add_special_);
    } catch (const Error& error) {
      error_ = std::make_unique<Error>(error);
    } catch (const std::bad_alloc&) {
      error_ = std::make_unique<Error>("IX_OUT_OF_MEMORY", "not enough memory to encode the text");
    }
  }
  void OnOK() override {
    if (error_) {
      deferred_.Reject(to_js(Env(), *error_).Value());
    } else {
      deferred_.Resolve(to_array(Env(), ids_));
    }
  }

 private:
  Napi::Promise::Deferred deferred_;
  TokenizerPtr tokenizer_;
  std::vector<TextSegment> segments_;
  bool add_special_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Error> error_;
};

class TokenizerClass : public Napi::ObjectWrap<TokenizerClass> {
 public:
  static void define(Napi::Env env, Napi::Object exports) {
    exports.Set("Tokenizer", DefineClass(env, "Tokenizer",
                                         {InstanceMethod<&TokenizerClass::encode>("encode"),
                                          InstanceMethod<&TokenizerClass::encode_async>("encodeAsync"),
                                          InstanceMethod<&TokenizerClass::decode_ids>("decode"),
                                          InstanceMethod<&TokenizerClass::token_bytes>("tokenBytes"),
                                          InstanceMethod<&TokenizerClass::token_text>("tokenText"),
                                          InstanceMethod<&TokenizerClass::is_special>("isSpecial"),
                                          InstanceMethod<&TokenizerClass::find>("find"),
                                          InstanceMethod<&TokenizerClass::control_tokens>("controlTokens"),
                                          InstanceMethod<&TokenizerClass::share>("share"),
                                          InstanceAccessor<&TokenizerClass::vocab_size>("vocabSize"),
                                          InstanceAccessor<&TokenizerClass::bos>("bos"),
                                          InstanceAccessor<&TokenizerClass::eos>("eos")}));
  }

  explicit TokenizerClass(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guarded(info.Env(), [&] {
      const Napi::Object spec = object_argument(info[0], "spec");
      if (const Napi::Value handle = spec.Get("handle"); handle.IsNumber()) {
        tokenizer_ = SharedTokenizers::get().open(handle.As<Napi::Number>().DoubleValue());
        return;
      }
      const std::string kind = string_argument(spec.Get("kind"), "spec.kind");
      if (kind == "json") {
        tokenizer_ =
            Tokenizer::from_json(text_argument(spec.Get("json"), "spec.json"), read_config(spec.Get("config")));
      } else if (kind == "sentencepiece") {
        tokenizer_ = Tokenizer::from_sentencepiece(text_argument(spec.Get("model"), "spec.model"),
                                                   read_config(spec.Get("config")));
      } else if (kind == "vocab") {
        tokenizer_ = Tokenizer::from_vocab(read_vocab(object_argument(spec.Get("vocab"), "spec.vocab")));
      } else {
        bad_argument("spec.kind", "\"json\", \"sentencepiece\" or \"vocab\"");
      }
    });
    info.This().As<Napi::Object>().TypeTag(&kTokenizerTag);
  }

  // The tokenizer behind a JavaScript object, which may be anything.
  static TokenizerPtr of(Napi::Value value) {
    if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&kTokenizerTag))
      bad_argument("tokenizer", "a Tokenizer");
    return Unwrap(value.As<Napi::Object>())->tokenizer_;
  }

 private:
  Napi::Value encode(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      return to_array(info.Env(), tokenizer_->encode(segments_argument(info[0]), flag_argument(info[1], "addSpecial")));
    });
  }
  Napi::Value encode_async(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&]() -> Napi::Value {
      auto work = std::make_unique<EncodeWork>(info.Env(), tokenizer_, segments_argument(info[0]),
                                               flag_argument(info[1], "addSpecial"));
      work->Queue();
      return work.release()->promise();  // deletes itself when done
    });
  }
  Napi::Value decode_ids(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      const Napi::Int32Array ids = ids_argument(info[0]);
      return Napi::String::New(info.Env(),
                               decode(tokenizer_, ids.Data(), ids.ElementLength(), read_stream_options(info[1])));
    });
  }
  // kNoToken beyond the vocabulary: models pad theirs.
  uint32_t id_argument(const Napi::CallbackInfo& info) {
    const double id = info[0].IsNumber() ? info[0].As<Napi::Number>().DoubleValue() : -1;
    if (!(id >= 0 && id <= INT32_MAX)) bad_argument("id", "a token id");
    return id < tokenizer_->vocab_size() ? static_cast<uint32_t>(id) : kNoToken;
  }
  Napi::Value token_bytes(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      const uint32_t id = id_argument(info);
      const std::string_view bytes = id == kNoToken ? "" : tokenizer_->token_bytes(id);
      Napi::Uint8Array out = Napi::Uint8Array::New(info.Env(), bytes.size());
      std::copy(bytes.begin(), bytes.end(), out.Data());
      return out;
    });
  }
  Napi::Value token_text(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      const uint32_t id = id_argument(info);
      return Napi::String::New(info.Env(), id == kNoToken ? "" : std::string(tokenizer_->token_text(id)));
    });
  }
  Napi::Value is_special(const Napi::CallbackInfo& info) {
    return guarded(info.Env(),
                   [&] { return Napi::Boolean::New(info.Env(), tokenizer_->is_special(id_argument(info))); });
  }
  Napi::Value control_tokens(const Napi::CallbackInfo& info) {
    Napi::Array out = Napi::Array::New(info.Env());
    for (const std::string_view text : tokenizer_->control_tokens())
      out.Set(out.Length(), Napi::String::New(info.Env(), std::string(text)));
    return out;
  }
  Napi::Value share(const Napi::CallbackInfo& info) {
    Napi::Object out = Napi::Object::New(info.Env());
    out.Set("handle", Napi::Number::New(info.Env(), SharedTokenizers::get().add(tokenizer_)));
    return out;
  }
  Napi::Value find(const Napi::CallbackInfo& info) {
    return guarded(info.Env(),
                   [&] { return id_value(info.Env(), tokenizer_->find(string_argument(info[0], "token"))); });
  }
  Napi::Value vocab_size(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), tokenizer_->vocab_size());
  }
  Napi::Value bos(const Napi::CallbackInfo& info) { return id_value(info.Env(), tokenizer_->bos()); }
  Napi::Value eos(const Napi::CallbackInfo& info) { return id_value(info.Env(), tokenizer_->eos()); }
  static Napi::Value id_value(Napi::Env env, uint32_t id) {
    return Napi::Number::New(env, id == kNoToken ? -1.0 : static_cast<double>(id));
  }

  TokenizerPtr tokenizer_;
};

class TextStreamClass : public Napi::ObjectWrap<TextStreamClass> {
 public:
  static void define(Napi::Env env, Napi::Object exports) {
    exports.Set("TextStream", DefineClass(env, "TextStream",
                                          {InstanceMethod<&TextStreamClass::push>("push"),
                                           InstanceMethod<&TextStreamClass::flush>("flush"),
                                           InstanceAccessor<&TextStreamClass::stop_index>("stopIndex")}));
  }
  explicit TextStreamClass(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guarded(info.Env(), [&] {
      stream_ = std::make_unique<Detokenizer>(TokenizerClass::of(info[0]), read_stream_options(info[1]));
    });
  }

 private:
  Napi::Value push(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      text_.clear();
      if (info[0].IsNumber()) {
        stream_->push(info[0].As<Napi::Number>().Int32Value(), text_);
      } else {
        const Napi::Int32Array ids = ids_argument(info[0]);
        for (size_t i = 0; i < ids.ElementLength(); ++i) stream_->push(ids.Data()[i], text_);
      }
      return Napi::String::New(info.Env(), text_);
    });
  }
  Napi::Value stop_index(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), stream_->stop_index());
  }
  Napi::Value flush(const Napi::CallbackInfo& info) {
    return guarded(info.Env(), [&] {
      text_.clear();
      stream_->flush(text_);
      return Napi::String::New(info.Env(), text_);
    });
  }

  std::unique_ptr<Detokenizer> stream_;
  std::string text_;  // of the latest call, for its capacity
};

}  // namespace

void register_tokenizer(Napi::Env env, Napi::Object exports) {
  TokenizerClass::define(env, exports);
  TextStreamClass::define(env, exports);
}

}  // namespace ix::node
