// NFC, NFD, NFKC, NFKD (Unicode Standard Annex 15) over the generated tables.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/unicode.h"
#include "text/unicode_data.h"
#include "text/utf8.h"

namespace ix {
namespace {

using namespace unicode_data;

constexpr uint32_t kHangulFirst = 0xAC00, kHangulCount = 11172, kLeadFirst = 0x1100, kVowelFirst = 0x1161,
                   kTrailFirst = 0x11A7, kVowelCount = 21, kTrailCount = 28;

struct NormalTables {
  std::unordered_map<uint32_t, uint32_t> canonical, compatible;  // code -> position << 5 | count in kDecomposed
  std::unordered_map<uint64_t, uint32_t> composed;               // first << 32 | second -> composite
  std::unordered_map<uint32_t, uint8_t> combining;
  std::vector<uint8_t> changing;  // per code point, bit `form`: may change, or change what stands before it

  NormalTables() {
    for (size_t i = 0; i < std::size(kCanonical); i += 2) canonical.emplace(kCanonical[i], kCanonical[i + 1]);
    for (size_t i = 0; i < std::size(kCompatible); i += 2) compatible.emplace(kCompatible[i], kCompatible[i + 1]);
    for (size_t i = 0; i < std::size(kComposed); i += 3) {
      composed.emplace(static_cast<uint64_t>(kComposed[i]) << 32 | kComposed[i + 1], kComposed[i + 2]);
    }
    for (size_t i = 0; i < std::size(kCombiningRuns); ++i) {
      if ((kCombiningRuns[i] & 0xFF) == 0) continue;  // the last run is one of zeros
      for (uint32_t c = kCombiningRuns[i] >> 8; c < kCombiningRuns[i + 1] >> 8; ++c)
        combining.emplace(c, kCombiningRuns[i] & 0xFF);
    }
    const uint8_t all = 15, composing = bit(NormalForm::kNfc) | bit(NormalForm::kNfkc);
    changing.resize(0x110000);
    for (const auto& [code, entry] : canonical) changing[code] |= all;
    for (const auto& [pair, code] : composed) changing[code] &= ~composing;
    for (const auto& [pair, code] : composed) changing[pair & 0xFFFFFFFF] |= composing;
    for (const auto& [code, entry] : compatible) changing[code] |= bit(NormalForm::kNfkc) | bit(NormalForm::kNfkd);
    for (const auto& [code, value] : combining) changing[code] |= all;
    for (uint32_t i = 0; i < kVowelCount; ++i) changing[kVowelFirst + i] |= composing;
    for (uint32_t i = 1; i < kTrailCount; ++i) changing[kTrailFirst + i] |= composing;
    for (uint32_t i = 0; i < kHangulCount; ++i) changing[kHangulFirst + i] |= all & ~composing;
  }

  static constexpr uint8_t bit(NormalForm form) { return 1 << static_cast<int>(form); }

  static const NormalTables& get() {
    static const NormalTables tables;
    return tables;
  }

  uint8_t combining_class(uint32_t code) const {
    if (code < 0x300) return 0;
    const auto found = combining.find(code);
    return found == combining.end() ? 0 : found->second;
  }

  uint32_t compose(uint32_t first, uint32_t second) const {  // 0: no composite
    if (first >= kLeadFirst && first < kLeadFirst + 19 && second >= kVowelFirst && second < kVowelFirst + kVowelCount) {
      return kHangulFirst + ((first - kLeadFirst) * kVowelCount + (second - kVowelFirst)) * kTrailCount;
    }
    if (first >= kHangulFirst && first < kHangulFirst + kHangulCount && (first - kHangulFirst) % kTrailCount == 0 &&
        second > kTrailFirst && second < kTrailFirst + kTrailCount) {
      return first + (second - kTrailFirst);
    }
    const auto found = composed.find(static_cast<uint64_t>(first) << 32 | second);
    return found == composed.end() ? 0 : found->second;
  }
};

using Marked = std::pair<uint32_t, uint8_t>;  // code point, combining class

void decompose(const NormalTables& tables, uint32_t code, bool compatibility, std::vector<Marked>& out) {
  if (code >= kHangulFirst && code < kHangulFirst + kHangulCount) {
    const uint32_t index = code - kHangulFirst;
    out.emplace_back(kLeadFirst + index / (kVowelCount * kTrailCount), 0);
    out.emplace_back(kVowelFirst + index / kTrailCount % kVowelCount, 0);
    if (index % kTrailCount != 0) out.emplace_back(kTrailFirst + index % kTrailCount, 0);
    return;
  }
  const uint32_t* entry = nullptr;
  if (compatibility) {
    if (const auto found = tables.compatible.find(code); found != tables.compatible.end()) entry = &found->second;
  }
  if (entry == nullptr) {
    if (const auto found = tables.canonical.find(code); found != tables.canonical.end()) entry = &found->second;
  }
  if (entry == nullptr) {
    out.emplace_back(code, tables.combining_class(code));
    return;
  }
  for (uint32_t i = 0; i < (*entry & 31); ++i) {
    const uint32_t part = kDecomposed[(*entry >> 5) + i];
    out.emplace_back(part, tables.combining_class(part));
  }
}

// Appends one run (a starter with its marks, or several) in canonical order, composed if asked.
void append_run(const NormalTables& tables, std::vector<Marked>& run, bool compose, std::string& out) {
  for (size_t i = 0; i < run.size();) {  // stable sort of each stretch of marks
    if (run[i].second == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < run.size() && run[end].second != 0) ++end;
    std::stable_sort(run.begin() + i, run.begin() + end,
                     [](const Marked& a, const Marked& b) { return a.second < b.second; });
    i = end;
  }
  if (compose) {
    size_t kept = 0, starter = run.size();
    int last_class = -1;  // of the code point before, since the starter
    for (size_t i = 0; i < run.size(); ++i) {
      const Marked mark = run[i];
      if (starter < kept && (last_class < mark.second || last_class == -1)) {
        if (const uint32_t composite = tables.compose(run[starter].first, mark.first)) {
          run[starter].first = composite;
          continue;
        }
      }
      if (mark.second == 0) {
        starter = kept;
        last_class = -1;
      } else {
        last_class = mark.second;
      }
      run[kept++] = mark;
    }
    run.resize(kept);
  }
  for (const Marked& mark : run) append_utf8(out, mark.first);
  run.clear();
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const NormalTables& tables = NormalTables::get();
  const auto changes = [&](uint32_t code) {
    return code >= 0x80 && (tables.changing[code] & NormalTables::bit(form)) != 0;
  };
  std::string out;
  out.reserve(text.size());
  std::vector<Marked> run;
  size_t at = 0;
  while (at < text.size()) {
    // Stretches of unchanging code points are copied; the last of one may still take marks, so it goes into the run.
    size_t end = at, last = at;
    while (end < text.size()) {
      const CodePoint c = decode_utf8(text, end);
      if (changes(c.value)) break;
      last = end;
      end += c.length;
    }
    if (end == text.size()) {
      out.append(text.substr(at));
      break;
    }
    out.append(text.substr(at, last - at));
    if (last < end) decompose(tables, decode_utf8(text, last).value, compatibility, run);
    at = end;
    while (at < text.size()) {
      const CodePoint c = decode_utf8(text, at);
      if (!changes(c.value)) break;
      decompose(tables, c.value, compatibility, run);
      at += c.length;
    }
    append_run(tables, run, compose, out);
  }
  return out;
}

}  // namespace ix
