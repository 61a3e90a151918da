// The matcher: an explicit backtracking stack. A state that failed once fails always (there are no captures), so after
// the budget is spent failures are remembered across attempts and the rest of the search is linear.
#include "text/regex.h"

#include <algorithm>

#include "core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), steps_left_(4096 + uint64_t{64} * text.size()) {}

bool RegexSearch::next(size_t from, size_t* start, size_t* end) {
  for (size_t at = from; at <= text_.size();) {
    if (at < text_.size() && !regex_.first_bytes_[static_cast<uint8_t>(text_[at])]) {
      ++at;
      continue;
    }
    const size_t found = run(0, at);
    if (found != std::string_view::npos) {
      *start = at;
      *end = found;
      return true;
    }
    at += at < text_.size() ? decode_utf8(text_, at).length : 1;
  }
  return false;
}

size_t RegexSearch::run(uint32_t step, size_t at) {
  using Op = Regex::Op;
  const size_t base = stack_.size();
  const size_t stride = text_.size() + 1;
  const auto word_at = [&](size_t i) {
    return i < text_.size() && UnicodeTable::get().has(decode_utf8(text_, i).value, kWordBit);
  };
  for (;;) {
    if (--steps_left_ == 0) {
      if (remember_) fail("IX_TOKENIZER", "a split pattern takes too many steps on a text of %zu bytes", text_.size());
      const size_t words = (stride * regex_.num_splits_ + 63) / 64;
      if (words > (size_t{1} << 27))
        fail("IX_TOKENIZER", "a split pattern needs too much memory on a text of %zu bytes", text_.size());
      remember_ = true;
      failed_.assign(words, 0);
      steps_left_ = 4096 + uint64_t{16} * stride * regex_.steps_.size();
    }
    const Regex::Step& s = regex_.steps_[step];
    bool alive = true;
    switch (s.op) {
      case Op::kSet: {
        if (at >= text_.size()) {
          alive = false;
          break;
        }
        const CodePoint c = decode_utf8(text_, at);
        alive = regex_.sets_[s.a].contains(c.value);
        at += c.length;
        ++step;
        break;
      }
      case Op::kSplit:
        if (remember_) {
          const size_t bit = s.split * stride + at;
          if ((failed_[bit >> 6] >> (bit & 63) & 1) != 0) {
            alive = false;
            break;
          }
          stack_.push_back({step | kFailed, at});
        }
        stack_.push_back({s.b, at});
        step = s.a;
        break;
      case Op::kJump:
        step = s.a;
        break;
      case Op::kMatch:
        stack_.resize(base);
        return at;
      case Op::kAhead:
      case Op::kNotAhead:
        alive = (run(s.a, at) != std::string_view::npos) == (s.op == Op::kAhead);
        step = s.b;
        break;
      case Op::kAtomic: {
        const size_t end = run(s.a, at);
        alive = end != std::string_view::npos;
        at = end;
        step = s.b;
        break;
      }
      case Op::kLineStart:
        alive = at == 0 || text_[at - 1] == '\n';
        ++step;
        break;
      case Op::kLineEnd:
        alive = at == text_.size() || text_[at] == '\n';
        ++step;
        break;
      case Op::kTextStart:
        alive = at == 0;
        ++step;
        break;
      case Op::kTextEnd:
        alive = at == text_.size();
        ++step;
        break;
      case Op::kWordBorder:
      case Op::kNotWordBorder: {
        const bool before = at > 0 && word_at(previous_code(text_, at));
        alive = (before != word_at(at)) == (s.op == Op::kWordBorder);
        ++step;
        break;
      }
    }
    while (!alive) {
      if (stack_.size() == base) return std::string_view::npos;
      const Frame frame = stack_.back();
      stack_.pop_back();
      if ((frame.step & kFailed) != 0) {
        const size_t bit = regex_.steps_[frame.step & ~kFailed].split * stride + frame.at;
        failed_[bit >> 6] |= uint64_t{1} << (bit & 63);
        continue;
      }
      step = frame.step;
      at = frame.at;
      alive = true;
    }
  }
}

}  // namespace ix
