// The hand-compiled split patterns against the regex engine, on random text of many scripts; and the engine's bounds.
#include <cstdio>
#include <random>
#include <string>

#include "core/error.h"
#include "text/split.h"
#include "text/utf8.h"

namespace {

int failures = 0;

void check(bool ok, const char* what) {
  if (ok) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

std::string random_text(std::mt19937& random) {
  static const char* const kPool[] = {
      "a",      "B",  "Ab",  "hello",   " ",          "  ",     "\n",  "\r\n",    "\t",     "\u00a0",
      "\u3000", "'s", "'LL", "'\u017F", "'",          "1",      "12",  "1234567", "\u0663", "\u2167",
      "日本",   "ひ", "각",  "\u0301",  "\u01C5",     "\u02B0", "!",   "...",     "/",      "\\",
      "$",      "+",  "_",   "\u200d",  "\U0001F600", "\u0e33", "(x)", ";\n",     "\u0085", "\u4e00\u0301"};
  std::string out;
  for (size_t i = random() % 14; i > 0; --i) {
    if (random() % 8 == 0) {
      uint32_t code = random() % 0x20000;
      if (code >= 0xD800 && code < 0xE000) code = 0x4E00;
      ix::append_utf8(out, code);
    } else {
      out += kPool[random() % std::size(kPool)];
    }
  }
  return out;
}

std::string shown(const std::vector<ix::Cut>& cuts) {
  std::string out;
  for (const ix::Cut& cut : cuts)
    out += (cut.match ? "[" : "(") + std::to_string(cut.start) + "," + std::to_string(cut.end) + ") ";
  return out;
}

void compare_published() {
  std::mt19937 random(7);
  for (const char* pattern : {ix::patterns::kGpt2, ix::patterns::kLlama3, ix::patterns::kQwen2, ix::patterns::kO200k,
                              ix::patterns::kDeepseekV3}) {
    check(ix::published_matcher(pattern) != nullptr, "a published pattern has a matcher");
    const auto fast = ix::SplitPattern::regex(pattern), slow = ix::SplitPattern::regex(pattern, false);
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(random);
      std::vector<ix::Cut> a, b;
      fast.cut(text, a);
      slow.cut(text, b);
      if (shown(a) != shown(b)) {
        ++failures;
        std::printf("FAILED: \"%s\" by %.40s...\n  matcher %s\n  engine  %s\n", text.c_str(), pattern, shown(a).c_str(),
                    shown(b).c_str());
        return;
      }
    }
  }
}

// Patterns that are exponential or quadratic for a plain backtracker have to end on long texts.
void bound_hostile() {
  const std::string text(100000, 'a');
  const std::pair<const char*, size_t> cases[] = {
      {"(a|a)+b", 1}, {"(a+)+b", 1}, {"a+b|a", text.size()}, {"(?:a|aa)+$", 1}, {"a*?b|aa", text.size() / 2}};
  for (const auto& [pattern, num_cuts] : cases) {
    std::vector<ix::Cut> cuts;
    ix::SplitPattern::regex(pattern).cut(text, cuts);
    if (cuts.size() != num_cuts) std::printf("%s: %zu cuts\n", pattern, cuts.size());
    check(cuts.size() == num_cuts, "cuts of a hostile pattern");
  }
}

void refuse_unsupported() {
  for (const char* pattern : {"(", ")", "[a", "a**?+(", "\\p{Nope}", "(?<=a)b", "(a)\\1", "(a*)*", "a{2000}", "*a",
                              "\\q", "(?~a)", "[z-a]", "a{3,2}", "\\x{110000}", "((((a{999}){999}){999}){999})"}) {
    bool refused = false;
    try {
      ix::SplitPattern::regex(pattern);
    } catch (const ix::Error& error) {
      refused = std::string(error.code()) == "IX_TOKENIZER";
    }
    if (!refused) std::printf("accepted: %s\n", pattern);
    check(refused, "an unsupported pattern is refused");
  }
  bool refused = false;
  try {
    ix::SplitPattern::regex(std::string(100000, '('));
  } catch (const ix::Error&) {
    refused = true;
  }
  check(refused, "deep nesting is refused");
}

}  // namespace

int main() {
  compare_published();
  bound_hostile();
  refuse_unsupported();
  std::printf(failures == 0 ? "ok\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
