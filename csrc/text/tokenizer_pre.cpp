// Table of the split-pattern names of GGUF files.
#include "text/tokenizer_pre.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "text/split.h"

namespace ix {
namespace {

using namespace patterns;

constexpr char
    kDigits3[] = R"(\p{N}{1,3})",
    kDigit[] = R"(\p{N})", kDigits[] = R"(\p{N}+)", kThreeDigits[] = "[0-9][0-9][0-9]", kNewline[] = R"([\r\n])",
    kCjk[] = "[一-龥\u0800-\u4e00\uac00-\ud7ff]+", kHanKana[] = "[一-龥\u3040-\u309f\u30a0-\u30ff]+",
    kFalconSymbols[] = R"([\p{P}\$\+<=>\^~\|`]+)", kDefaultSymbols[] = R"([\p{P}\$\+<=>\^~\|]+)",
    kCoderLetters[] = R"(\s?\p{L}+)", kCoderSymbols[] = R"(\s?\p{P}+)", kTrailingSpace[] = R"(\s+$)",
    // Letters with case only: CJK and the like have a pattern of their own.
    kCasedLetters[] = R"(\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\x{1BB}\x{1C0}-\x{1C3}]]+)",
    kLlmSymbols[] = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+",
    kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)",
    kTekken[] = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Named {
  std::vector<std::string_view> names;
  PreRecipe recipe;
};

const std::vector<Named>& table() {
  static const std::vector<Named> recipes = {
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {{kLlama3}, true, true}},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {{kLlama3}}},
      {{"qwen2", "stablelm2", "megrez", "deepseek-r1-qwen"}, {{kQwen2}, false, false, true}},
      {{"qwen35"}, {{kQwen35}}},
      {{"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "jina-es", "jina-de", "jina-v2-es",
        "jina-v2-de", "jina-v2-code", "gigachat", "exaone4"},
       {{kGpt2}}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}, {{kDigit, kGpt2}}},
      {{"gpt-4o", "llama4"}, {{kO200k}}},
      {{"tekken"}, {{kTekken}, true, true}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {{kDigits3, kHanKana, kDeepseekV3}}},
      {{"deepseek-coder"}, {{kNewline, kCoderLetters, kCoderSymbols, kCjk, kDigit}}},
      {{"deepseek-llm"}, {{kNewline, kCasedLetters, kLlmSymbols, kTrailingSpace, kCjk, kDigits}}},
      {{"falcon"}, {{kFalconSymbols, kGpt2, kThreeDigits}}},
      {{"default"}, {{kDefaultSymbols, kGpt2, kDigits, kThreeDigits}}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {{kBloom}}},
      {{"viking"}, {{kBloom, kDigit}}},
  };
  return recipes;
}

}  // namespace

PreRecipe pre_recipe(std::string_view name) {
  for (const Named& entry : table()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return entry.recipe;
  }
  fail("IX_TOKENIZER", "the split pattern \"%.100s\" (tokenizer.ggml.pre) is not known", std::string(name).c_str());
}

}  // namespace ix
