// The names of tokenizer.ggml.pre and what they mean: the split patterns of a byte-level vocabulary in a GGUF file.
#pragma once
#include <string_view>
#include <vector>

namespace ix {

struct PreRecipe {
  std::vector<std::string_view> patterns;  // applied one after the other, matches isolated
  bool ignore_merges = false;
  bool add_bos = false;  // when the file does not say
  bool nfc = false;      // the publishers' tokenizers of these families normalize
};

PreRecipe pre_recipe(std::string_view name);  // throws IX_TOKENIZER naming an unknown one

}  // namespace ix
