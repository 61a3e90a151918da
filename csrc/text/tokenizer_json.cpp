// A Tokenizer from the text of a tokenizer.json.
#include <algorithm>

#include "core/error.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

namespace ix {
namespace {

using Tokens = std::vector<std::pair<std::string_view, uint32_t>>;

std::vector<AddedToken> read_added(JsonValue spec) {
  std::vector<AddedToken> out;
  if (spec.is_null()) return out;
  spec.each("added_tokens", [&](JsonValue token) {
    AddedToken added;
    added.text = token["content"].string("added_tokens[].content");
    added.id = token["id"].integer("added_tokens[].id", kMaxTokens);
    added.special = token.boolean_or("special", false);
    added.single_word = token.boolean_or("single_word", false);
    added.lstrip = token.boolean_or("lstrip", false);
    added.rstrip = token.boolean_or("rstrip", false);
    added.normalized = token.boolean_or("normalized", !added.special);
    out.push_back(std::move(added));
  });
  return out;
}

// The model's "vocab" object. Ids are below kMaxTokens; each text and each id may come once.
Tokens read_vocab(JsonValue vocab) {
  Tokens tokens;
  tokens.reserve(vocab.size("model.vocab"));
  vocab.each_member("model.vocab", [&](std::string_view text, JsonValue id) {
    tokens.emplace_back(text, id.integer("model.vocab id", kMaxTokens));
  });
  return tokens;
}

uint32_t find_text(const Tokens& tokens, std::string_view text) {
  const auto found = std::find_if(tokens.begin(), tokens.end(), [&](const auto& token) { return token.first == text; });
  return found == tokens.end() ? kNoToken : found->second;
}

std::unique_ptr<Model> read_bpe(JsonValue model, bool byte_level, const Tokens& tokens,
                                const std::vector<bool>& unreachable) {
  BpeOptions options;
  options.byte_level = byte_level;
  options.byte_fallback = model.boolean_or("byte_fallback", false);
  options.fuse_unk = model.boolean_or("fuse_unk", false);
  options.ignore_merges = model.boolean_or("ignore_merges", false);
  options.unk_token = model.string_or("unk_token", "");
  options.continuing_subword_prefix = model.string_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = model.string_or("end_of_word_suffix", "");
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(model["merges"].size("model.merges"));
  model["merges"].each("model.merges", [&](JsonValue merge) {
    std::string_view parts[2];
    if (merge.is_string()) {
      const std::string_view text = merge.string("merge");
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        fail("IX_TOKENIZER", "merge %zu is not two texts with a space between", merges.size());
      }
      parts[0] = text.substr(0, space);
      parts[1] = text.substr(space + 1);
    } else {
      if (merge.size("merge") != 2) fail("IX_TOKENIZER", "merge %zu is not a pair", merges.size());
      size_t i = 0;
      merge.each("merge", [&](JsonValue part) { parts[i++] = part.string("merge part"); });
    }
    merges.emplace_back(parts[0], parts[1]);
  });
  auto bpe = std::make_unique<Bpe>(std::move(options), tokens, unreachable);
  bpe->set_merges(merges);
  return bpe;
}

Tokens read_unigram_vocab(JsonValue vocab, std::vector<double>& scores) {
  Tokens tokens;
  vocab.each("model.vocab", [&](JsonValue entry) {
    size_t i = 0;
    if (entry.size("model.vocab[]") != 2) fail("IX_TOKENIZER", "model.vocab[%zu] is not a pair", tokens.size());
    entry.each("model.vocab[]", [&](JsonValue part) {
      if (i++ == 0) {
        tokens.emplace_back(part.string("model.vocab[][0]"), static_cast<uint32_t>(tokens.size()));
      } else {
        scores.push_back(part.number("model.vocab[][1]"));
      }
    });
    if (tokens.size() > kMaxTokens) fail("IX_TOKENIZER", "the vocabulary has more than %u tokens", kMaxTokens);
  });
  return tokens;
}

// Wraps prefix and suffix with what a post-processor puts around a single text.
void read_post_processor(JsonValue spec, const Tokens& tokens, TokenizerParts& parts, int depth) {
  if (spec.is_null()) return;
  if (depth > 8) fail("IX_TOKENIZER", "post-processors are nested too deeply");
  const std::string type(spec["type"].string("post_processor type"));
  std::vector<uint32_t> before, after;
  if (type == "Sequence") {
    spec["processors"].each("processors", [&](JsonValue step) { read_post_processor(step, tokens, parts, depth + 1); });
  } else if (type == "TemplateProcessing") {
    bool seen = false;
    spec["single"].each("single", [&](JsonValue item) {
      if (item["Sequence"].is_object()) {
        if (seen) fail("IX_TOKENIZER", "a template with the text twice is not supported");
        seen = true;
        return;
      }
      const std::string name(item["SpecialToken"]["id"].string("SpecialToken.id"));
      spec["special_tokens"][name]["ids"].each("special_tokens[].ids", [&](JsonValue id) {
        (seen ? after : before).push_back(id.integer("special_tokens[].ids[]", kMaxTokens));
      });
    });
    if (!seen) fail("IX_TOKENIZER", "a template without the text is not supported");
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto second = [&](const char* key) {
      uint32_t id = kNoToken;
      spec[key].each(key, [&](JsonValue part) {
        if (part.is_number()) id = part.integer(key, kMaxTokens);
      });
      if (id == kNoToken) fail("IX_TOKENIZER", "%s of the post-processor has no id", key);
      return id;
    };
    before.push_back(second("cls"));
    after.push_back(second("sep"));
  } else if (type != "ByteLevel") {
    fail("IX_TOKENIZER", "the post-processor \"%.100s\" is not supported", type.c_str());
  }
  parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json, const TokenizerConfig& config) {
  const Json document(json);
  const JsonValue root = document.root(), model = root["model"];
  if (!model.is_object()) fail("IX_TOKENIZER", "tokenizer.json has no model");
  TokenizerParts parts;
  parts.normalizer = make_normalizer(root["normalizer"]);
  bool byte_level = false;
  parts.pretokenizer = make_pretokenizer(root["pre_tokenizer"], &byte_level);
  parts.added = read_added(root["added_tokens"]);
  parts.decoder = make_decoder(root["decoder"]);

  // Older files do not name the model's type.
  const JsonValue vocab = model["vocab"];
  const std::string_view implied = vocab.is_array() ? "Unigram" : !model["merges"].is_null() ? "BPE" : "WordPiece";
  const std::string type(model.string_or("type", implied));
  std::vector<double> scores;
  parts.tokens = type == "Unigram" ? read_unigram_vocab(vocab, scores) : read_vocab(vocab);
  uint32_t size = 0;
  for (const auto& [text, id] : parts.tokens) size = std::max(size, id + 1);
  std::vector<bool> unreachable(size);
  for (const AddedToken& token : parts.added) {
    if (token.special && token.id < size) unreachable[token.id] = true;
  }
  if (type == "BPE") {
    parts.model = read_bpe(model, byte_level, parts.tokens, unreachable);
  } else if (type == "Unigram") {
    UnigramOptions options;
    if (!model["unk_id"].is_null()) options.unk = model["unk_id"].integer("model.unk_id", size);
    options.byte_fallback = model.boolean_or("byte_fallback", false);
    parts.model = std::make_unique<Unigram>(options, parts.tokens, scores, unreachable);
  } else if (type == "WordPiece") {
    const std::string unk(model.string_or("unk_token", "[UNK]"));
    const uint32_t unk_id = find_text(parts.tokens, unk);
    if (unk_id == kNoToken) fail("IX_TOKENIZER", "the unknown token \"%.100s\" is not in the vocabulary", unk.c_str());
    const JsonValue limit = model["max_input_chars_per_word"];
    parts.model = std::make_unique<WordPiece>(
        parts.tokens, unreachable, unk_id, model.string_or("continuing_subword_prefix", "##"),
        limit.is_null() ? 100 : limit.integer("max_input_chars_per_word", 1u << 20));
  } else {
    fail("IX_TOKENIZER", "the tokenizer model \"%.100s\" is not supported", type.c_str());
  }
  read_post_processor(root["post_processor"], parts.tokens, parts, 0);

  const auto token_id = [&](const std::optional<std::string>& text, const char* what) {
    if (!text) return kNoToken;
    for (const AddedToken& token : parts.added) {
      if (token.text == *text) return token.id;
    }
    const uint32_t id = find_text(parts.tokens, *text);
    if (id == kNoToken) fail("IX_TOKENIZER", "the %s \"%.100s\" is not in the vocabulary", what, text->c_str());
    return id;
  };
  parts.bos = token_id(config.bos_token, "bos_token");
  parts.eos = token_id(config.eos_token, "eos_token");
  if (config.add_bos || config.add_eos) {
    const bool bos = config.add_bos.value_or(false), eos = config.add_eos.value_or(false);
    if ((bos && parts.bos == kNoToken) || (eos && parts.eos == kNoToken)) {
      fail("IX_TOKENIZER", "add_bos_token or add_eos_token is set, but there is no such token");
    }
    parts.prefix.assign(bos ? 1 : 0, parts.bos);
    parts.suffix.assign(eos ? 1 : 0, parts.eos);
  }
  return std::make_shared<const Tokenizer>(std::move(parts));
}

}  // namespace ix
