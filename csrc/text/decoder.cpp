// The decoders of tokenizer.json and of the other vocabulary kinds.
#include "text/decoder.h"

#include "core/error.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/split.h"

namespace ix {
namespace {

constexpr char kMetaspace[] = "\u2581";

void byte_level_step(std::string& token, bool) {
  std::string bytes;
  if (byte_level_bytes(token, bytes)) token = std::move(bytes);  // added tokens may be outside of the alphabet
}

void byte_fallback_step(std::string& token, bool) {
  if (const int byte = byte_of_token(token); byte >= 0) token.assign(1, static_cast<char>(byte));
}

void clean_up(std::string& text) {  // BERT's tidying of spaces before punctuation
  constexpr const char* kRules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                       {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                       {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

void add_steps(JsonValue spec, Decoder& decoder, bool* fused, int depth) {
  if (depth > 8) fail("IX_TOKENIZER", "decoders are nested too deeply");
  const std::string type(spec["type"].string("decoder type"));
  if (type == "Sequence") {
    spec["decoders"].each("decoders", [&](JsonValue step) { add_steps(step, decoder, fused, depth + 1); });
    return;
  }
  const auto append = [&](Decoder part) {
    decoder.steps.insert(decoder.steps.end(), part.steps.begin(), part.steps.end());
    if (!part.word_end.empty()) decoder.word_end = part.word_end;
  };
  if (type == "Strip") {
    const uint32_t start = spec["start"].integer("start", 1000), stop = spec["stop"].integer("stop", 1000);
    const std::string content(spec["content"].string("content"));
    if (content.empty()) fail("IX_TOKENIZER", "a Strip decoder has no content");
    if (*fused) {
      if (stop != 0) fail("IX_TOKENIZER", "a Strip decoder at the end of the text is not supported");
      decoder.strip = content;
      decoder.strip_count = start;
      return;
    }
    decoder.steps.push_back([content, start, stop](std::string& token, bool) {
      for (uint32_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (uint32_t i = 0; i < stop && token.ends_with(content); ++i) token.erase(token.size() - content.size());
    });
    return;
  }
  if (type == "Fuse") {
    *fused = true;
    return;
  }
  if (*fused) fail("IX_TOKENIZER", "the decoder \"%.100s\" after Fuse is not supported", type.c_str());
  if (type == "ByteLevel") {
    append(byte_level_decoder());
    *fused = true;
  } else if (type == "ByteFallback") {
    decoder.steps.push_back(byte_fallback_step);
  } else if (type == "Replace") {
    const std::string to(spec["content"].string("content"));
    const JsonValue literal = spec["pattern"]["String"];
    if (!literal.is_string()) fail("IX_TOKENIZER", "a Replace decoder with a regular expression is not supported");
    decoder.steps.push_back([replace = replace_step(std::string(literal.string("pattern")), to)](
                                std::string& token, bool) { replace(token); });
  } else if (type == "Metaspace") {
    const bool never = spec["prepend_scheme"].is_string() ? spec["prepend_scheme"].string("prepend_scheme") == "never"
                                                          : !spec.boolean_or("add_prefix_space", true);
    append(metaspace_decoder(std::string(spec.string_or("replacement", kMetaspace)), !never));
  } else if (type == "WordPiece") {
    append(wordpiece_decoder(std::string(spec.string_or("prefix", "##")), spec.boolean_or("cleanup", true)));
  } else if (type == "BPEDecoder") {
    decoder.word_end = spec.string_or("suffix", "</w>");
  } else {
    fail("IX_TOKENIZER", "the decoder \"%.100s\" is not supported", type.c_str());
  }
}

}  // namespace

Decoder byte_level_decoder() {
  Decoder out;
  out.steps.push_back(byte_level_step);
  return out;
}

Decoder sentencepiece_decoder(bool strip_leading_space) {
  Decoder out = metaspace_decoder(kMetaspace, false);
  out.steps.push_back(byte_fallback_step);
  out.strip = " ";
  out.strip_count = strip_leading_space ? 1 : 0;
  return out;
}

Decoder metaspace_decoder(std::string replacement, bool strip_first) {
  if (replacement.empty()) fail("IX_TOKENIZER", "a Metaspace decoder has an empty replacement");
  Decoder out;
  out.steps.push_back(
      [=](std::string& token, bool first) { replace_all(token, replacement, first && strip_first ? "" : " "); });
  return out;
}

Decoder wordpiece_decoder(std::string prefix, bool cleanup) {
  Decoder out;
  out.steps.push_back([=](std::string& token, bool first) {
    if (!first && token.starts_with(prefix)) {
      token.erase(0, prefix.size());
    } else if (!first) {
      token.insert(0, " ");
    }
    if (cleanup) clean_up(token);
  });
  return out;
}

Decoder make_decoder(JsonValue spec) {
  Decoder out;
  bool fused = false;
  if (spec.is_null()) {
    out.steps.push_back([](std::string& token, bool first) {
      if (!first) token.insert(0, " ");
    });
  } else {
    add_steps(spec, out, &fused, 0);
  }
  return out;
}

}  // namespace ix
