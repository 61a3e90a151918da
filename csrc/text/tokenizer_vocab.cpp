// A Tokenizer from a bare vocabulary (GGUF metadata): the pipelines that llama.cpp's vocabulary kinds stand for.
#include <algorithm>

#include "core/error.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/tokenizer_pre.h"
#include "text/unicode.h"
#include "text/unigram.h"

namespace ix {
namespace {

constexpr char kMetaspace[] = "\u2581";
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocab {
  const VocabSpec& spec;
  std::vector<bool> unreachable;

  explicit Vocab(const VocabSpec& spec) : spec(spec), unreachable(spec.tokens.size()) {
    if (spec.tokens.empty()) fail("IX_TOKENIZER", "the vocabulary is empty");
    if (spec.tokens.size() > kMaxTokens) fail("IX_TOKENIZER", "the vocabulary has more than %u tokens", kMaxTokens);
    if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
      fail("IX_TOKENIZER", "%zu token types for %zu tokens", spec.types.size(), spec.tokens.size());
    }
    for (size_t i = 0; i < spec.tokens.size(); ++i)
      unreachable[i] = type(i) != kNormal && type(i) != kUserDefined && type(i) != kUnused;
  }
  int32_t type(size_t id) const { return spec.types.empty() ? static_cast<int32_t>(kNormal) : spec.types[id]; }
  uint32_t id(int64_t value, const char* what) const {
    if (value < 0) return kNoToken;
    if (value >= static_cast<int64_t>(spec.tokens.size()))
      fail("IX_TOKENIZER", "the %s id %lld is outside of the vocabulary", what, static_cast<long long>(value));
    return static_cast<uint32_t>(value);
  }
  void need_scores() const {
    if (spec.scores.size() != spec.tokens.size())
      fail("IX_TOKENIZER", "%zu scores for %zu tokens", spec.scores.size(), spec.tokens.size());
    for (const float score : spec.scores) {
      if (!(score > -1e30f && score < 1e30f)) fail("IX_TOKENIZER", "a token score is not finite");
    }
  }
};

void add_space_steps(const VocabSpec& spec, std::vector<NormalizeStep>& steps) {
  if (!spec.charsmap.empty()) steps.push_back(charsmap_step(spec.charsmap));
  if (spec.remove_extra_whitespaces) steps.push_back(collapse_spaces);
  if (spec.add_space_prefix) steps.push_back(prepend_step(kMetaspace));
  steps.push_back(replace_step(" ", kMetaspace));
}

void build_llama(const Vocab& vocab, TokenizerParts& parts) {
  const VocabSpec& spec = vocab.spec;
  vocab.need_scores();
  add_space_steps(spec, parts.normalizer);
  parts.decoder = sentencepiece_decoder(spec.add_space_prefix);
  BpeOptions options;
  options.byte_fallback = options.fuse_unk = true;
  if (const uint32_t unk = vocab.id(spec.unk, "unknown"); unk != kNoToken) options.unk_token = spec.tokens[unk];
  auto bpe = std::make_unique<Bpe>(std::move(options), parts.tokens, vocab.unreachable);
  std::vector<std::pair<std::string_view, uint32_t>> mergeable;
  std::vector<float> scores;
  for (uint32_t id = 0; id < spec.tokens.size(); ++id) {
    if (vocab.unreachable[id]) continue;
    mergeable.emplace_back(spec.tokens[id], id);
    scores.push_back(spec.scores[id]);
  }
  bpe->set_merges_by_score(mergeable, scores);
  parts.model = std::move(bpe);
}

void build_gpt2(const Vocab& vocab, TokenizerParts& parts) {
  const VocabSpec& spec = vocab.spec;
  const PreRecipe recipe = pre_recipe(spec.pre);
  if (recipe.nfc) parts.normalizer.push_back([](std::string& text) { text = normalize(text, NormalForm::kNfc); });
  for (const std::string_view pattern : recipe.patterns) {
    parts.pretokenizer.push_back(split_step(SplitPattern::regex(pattern), SplitBehavior::kIsolated, false));
  }
  parts.decoder = byte_level_decoder();
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = recipe.ignore_merges;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (const std::string& merge : spec.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos)
      fail("IX_TOKENIZER", "merge %zu is not two texts with a space between", merges.size());
    merges.emplace_back(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
  }
  auto bpe = std::make_unique<Bpe>(std::move(options), parts.tokens, vocab.unreachable);
  bpe->set_merges(merges);
  parts.model = std::move(bpe);
}

void build_t5(const Vocab& vocab, TokenizerParts& parts) {
  const VocabSpec& spec = vocab.spec;
  vocab.need_scores();
  add_space_steps(spec, parts.normalizer);
  parts.decoder = sentencepiece_decoder(spec.add_space_prefix);
  UnigramOptions options;
  options.unk = vocab.id(spec.unk, "unknown");
  options.byte_fallback =
      std::find(spec.types.begin(), spec.types.end(), static_cast<int32_t>(kByte)) != spec.types.end();
  parts.model = std::make_unique<Unigram>(
      options, parts.tokens, std::vector<double>(spec.scores.begin(), spec.scores.end()), vocab.unreachable);
}

// GGUF spells "word" as "\u2581word" and "##part" as "part"; `spelled` gets the usual spelling back.
void build_bert(const Vocab& vocab, std::vector<std::string>& spelled, TokenizerParts& parts) {
  const VocabSpec& spec = vocab.spec;
  parts.normalizer.push_back(bert_step(true, true, true, true));
  parts.pretokenizer.push_back(bert_words_step());
  parts.decoder = wordpiece_decoder("##", true);
  spelled = spec.tokens;
  for (uint32_t id = 0; id < spelled.size(); ++id) {
    if (vocab.type(id) != kNormal) continue;
    std::string& text = spelled[id];
    if (text.starts_with(kMetaspace)) {
      text.erase(0, std::size(kMetaspace) - 1);
    } else {
      text.insert(0, "##");
    }
  }
  for (auto& [text, id] : parts.tokens) text = spelled[id];
  const uint32_t unk = vocab.id(spec.unk, "unknown");
  if (unk == kNoToken) fail("IX_TOKENIZER", "a WordPiece vocabulary needs an unknown token");
  parts.model = std::make_unique<WordPiece>(parts.tokens, vocab.unreachable, unk, "##", 100);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_vocab(const VocabSpec& spec) {
  const Vocab vocab(spec);
  TokenizerParts parts;
  for (uint32_t id = 0; id < spec.tokens.size(); ++id) parts.tokens.emplace_back(spec.tokens[id], id);
  std::vector<std::string> spelled;
  bool add_bos = false, add_eos = false;
  if (spec.model == "llama") {
    add_bos = true;
    build_llama(vocab, parts);
  } else if (spec.model == "gpt2") {
    add_bos = pre_recipe(spec.pre).add_bos;
    build_gpt2(vocab, parts);
  } else if (spec.model == "bert") {
    add_bos = add_eos = true;
    build_bert(vocab, spelled, parts);
  } else if (spec.model == "t5") {
    add_eos = true;
    build_t5(vocab, parts);
  } else {
    fail("IX_TOKENIZER", "the vocabulary kind \"%.100s\" is not supported", spec.model.c_str());
  }
  for (uint32_t id = 0; id < spec.tokens.size(); ++id) {
    const int32_t type = vocab.type(id);
    if (spec.tokens[id].empty() || (type != kControl && type != kUnknown && type != kUserDefined)) continue;
    AddedToken token;
    token.text = spec.tokens[id];
    token.id = id;
    token.special = type != kUserDefined;
    parts.added.push_back(std::move(token));
  }
  parts.bos = vocab.id(spec.bos, "bos");
  parts.eos = vocab.id(spec.eos, "eos");
  if (spec.add_bos.value_or(add_bos) && parts.bos != kNoToken) parts.prefix.push_back(parts.bos);
  if (spec.add_eos.value_or(add_eos) && parts.eos != kNoToken) parts.suffix.push_back(parts.eos);
  return std::make_shared<const Tokenizer>(std::move(parts));
}

}  // namespace ix
