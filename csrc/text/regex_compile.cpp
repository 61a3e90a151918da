// Pattern text -> syntax tree -> program of regex.h. Syntax: Oniguruma's Ruby flavour as far as it is used in published
// tokenizers; anything else is refused with its name and place.
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "text/code_set.h"
#include "text/regex.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr size_t kMaxSteps = 4096;
constexpr uint32_t kMaxRepeat = 1000, kUnbounded = UINT32_MAX;
constexpr int kMaxNesting = 50;

}  // namespace

class RegexCompiler {
 public:
  RegexCompiler(std::string_view pattern, Regex& out) : pattern_(pattern), out_(out) {}

  void compile() {
    if (!is_valid_utf8(pattern_)) refuse("invalid UTF-8");
    Flags flags;
    const Tree tree = alternatives(flags, 0);
    if (at_ < pattern_.size()) refuse("unmatched ')'");
    emit(*tree);
    add(Regex::Op::kMatch);
    std::vector<bool> seen(out_.steps_.size());
    first_bytes(0, seen);
  }

 private:
  enum class Kind { kEmpty, kSet, kSequence, kAlternatives, kRepeat, kGroup, kAssertion };
  struct Node;
  using Tree = std::unique_ptr<Node>;
  struct Node {
    Kind kind;
    std::vector<Tree> children;
    uint32_t set = 0;                  // kSet
    uint32_t least = 1, most = 1;      // kRepeat
    bool lazy = false;                 // kRepeat
    Regex::Op op = Regex::Op::kMatch;  // kGroup (look-ahead, atomic), kAssertion
    bool nullable = true;              // can match the empty text
  };
  struct Flags {
    bool ignore_case = false, dot_newline = false;
  };

  [[noreturn]] void refuse(const char* why) const {
    fail("IX_TOKENIZER", "split pattern \"%.200s\", at byte %zu: %s", std::string(pattern_).c_str(), at_, why);
  }
  bool peek(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool take(std::string_view text) {
    if (!peek(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t take_code() {
    if (at_ >= pattern_.size()) refuse("the pattern ends too early");
    const CodePoint c = decode_utf8(pattern_, at_);
    at_ += c.length;
    return c.value;
  }

  static Tree node(Kind kind, bool nullable) {
    Tree tree = std::make_unique<Node>();
    tree->kind = kind;
    tree->nullable = nullable;
    return tree;
  }
  Tree set_node(Bounds bounds, const Flags& flags) {
    Tree tree = node(Kind::kSet, false);
    tree->set = static_cast<uint32_t>(out_.sets_.size());
    if (tree->set >= kMaxSteps) refuse("the pattern is too large");
    out_.sets_.emplace_back(flags.ignore_case ? ignore_case(bounds) : std::move(bounds));
    return tree;
  }

  Tree alternatives(Flags flags, int depth) {
    if (depth > kMaxNesting) refuse("groups are nested too deeply");
    Tree all = node(Kind::kAlternatives, false);
    do {
      Tree sequence = node(Kind::kSequence, true);
      while (at_ < pattern_.size() && !peek("|") && !peek(")")) {
        Tree item = repeated(flags, depth);
        sequence->nullable = sequence->nullable && item->nullable;
        sequence->children.push_back(std::move(item));
      }
      all->nullable = all->nullable || sequence->nullable;
      all->children.push_back(std::move(sequence));
    } while (take("|"));
    return all;
  }

  Tree repeated(Flags& flags, int depth) {
    Tree item = atom(flags, depth);
    for (;;) {
      uint32_t least, most;
      bool braces = false;
      if (take("*")) {
        least = 0, most = kUnbounded;
      } else if (take("+")) {
        least = 1, most = kUnbounded;
      } else if (take("?")) {
        least = 0, most = 1;
      } else if (peek("{") && interval(&least, &most)) {
        braces = true;
      } else {
        return item;
      }
      if (item->kind == Kind::kAssertion || (item->kind == Kind::kGroup && item->op != Regex::Op::kAtomic)) {
        refuse("repeating an assertion is not supported");
      }
      if (item->nullable && most > 1) refuse("repeating a group that can match nothing is not supported");
      Tree repeat = node(Kind::kRepeat, item->nullable || least == 0);
      repeat->least = least, repeat->most = most;
      repeat->lazy = take("?");
      repeat->children.push_back(std::move(item));
      item = std::move(repeat);
      if (!braces && !item->lazy && take("+")) {  // after braces Ruby's '+' is one more repetition
        Tree atomic = node(Kind::kGroup, item->nullable);
        atomic->op = Regex::Op::kAtomic;
        atomic->children.push_back(std::move(item));
        item = std::move(atomic);
      }
    }
  }

  bool interval(uint32_t* least, uint32_t* most) {
    const size_t back = at_++;
    const auto digits = [&](uint32_t* value) {
      const size_t start = at_;
      for (*value = 0; at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_) {
        *value = *value * 10 + static_cast<uint32_t>(pattern_[at_] - '0');
        if (*value > kMaxRepeat) refuse("a repeat count is too large");
      }
      return at_ > start;
    };
    const bool lower = digits(least);
    bool upper = lower;
    *most = *least;
    if (take(",")) {
      upper = digits(most);
      if (!upper) *most = kUnbounded;
    }
    if ((!lower && !upper) || !take("}")) {
      at_ = back;  // a literal brace
      return false;
    }
    if (*least > *most) refuse("a repeat range is reversed");
    return true;
  }

  Tree assertion(Regex::Op op) {
    Tree tree = node(Kind::kAssertion, true);
    tree->op = op;
    return tree;
  }

  Tree atom(Flags& flags, int depth) {
    if (take("(")) return group(flags, depth);
    if (take("[")) return set_node(bracket(0), flags);
    if (take("."))
      return set_node(flags.dot_newline ? Bounds{0, 0x110000} : Bounds{0, '\n', '\n' + 1, 0x110000}, Flags{});
    if (take("^")) return assertion(Regex::Op::kLineStart);
    if (take("$")) return assertion(Regex::Op::kLineEnd);
    if (peek("*") || peek("+") || peek("?")) refuse("nothing to repeat");
    if (take("\\A")) return assertion(Regex::Op::kTextStart);
    if (take("\\z")) return assertion(Regex::Op::kTextEnd);
    if (take("\\b")) return assertion(Regex::Op::kWordBorder);
    if (take("\\B")) return assertion(Regex::Op::kNotWordBorder);
    if (take("\\")) return set_node(escape(), flags);
    if (peek("{")) {
      uint32_t least, most;
      if (interval(&least, &most)) refuse("nothing to repeat");
    }
    const uint32_t code = take_code();
    return set_node({code, code + 1}, flags);
  }

  Tree group(Flags& outer, int depth) {
    Flags flags = outer;
    Regex::Op op = Regex::Op::kMatch;
    if (take("?")) {
      if (take("=")) {
        op = Regex::Op::kAhead;
      } else if (take("!")) {
        op = Regex::Op::kNotAhead;
      } else if (take(">")) {
        op = Regex::Op::kAtomic;
      } else if (peek("<=") || peek("<!")) {
        refuse("look-behind is not supported");
      } else if (take("<") || take("P<")) {
        while (at_ < pattern_.size() && !take(">")) ++at_;
      } else {
        for (bool on = true; !take(":");) {
          if (take("-")) {
            on = false;
          } else if (take("i")) {
            flags.ignore_case = on;
          } else if (take("m") || take("s")) {
            flags.dot_newline = on;
          } else if (take(")")) {  // flags up to the end of the enclosing group
            outer = flags;
            return node(Kind::kEmpty, true);
          } else {
            refuse("an unknown kind of group");
          }
        }
      }
    }
    Tree body = alternatives(flags, depth + 1);
    if (!take(")")) refuse("a group is not closed");
    if (op == Regex::Op::kMatch) return body;
    Tree tree = node(Kind::kGroup, op != Regex::Op::kAtomic || body->nullable);
    tree->op = op;
    tree->children.push_back(std::move(body));
    return tree;
  }

  // After a backslash: a set of one or more code points.
  Bounds escape() {
    const uint32_t c = take_code();
    const auto one = [](uint32_t code) { return Bounds{code, code + 1}; };
    switch (c) {
      case 'p':
      case 'P': {
        if (!take("{")) refuse("expected '{' after \\p");
        const bool negated = take("^") != (c == 'P');
        const size_t close = pattern_.find('}', at_);
        if (close == std::string_view::npos) refuse("\\p{ is not closed");
        const Bounds set = unicode_set(pattern_.substr(at_, close - at_));
        if (set.empty()) refuse("an unknown property in \\p{}");
        at_ = close + 1;
        return negated ? complement(set) : set;
      }
      case 's':
        return white_space_set();
      case 'S':
        return complement(white_space_set());
      case 'd':
        return unicode_set("Nd");
      case 'D':
        return complement(unicode_set("Nd"));
      case 'w':
        return word_set();
      case 'W':
        return complement(word_set());
      case 'h':
        return {'0', '9' + 1, 'A', 'F' + 1, 'a', 'f' + 1};
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'a':
        return one('\a');
      case 'e':
        return one(0x1B);
      case '0':
        return one(0);
      case 'x':
        return take("{") ? one(hex(1, 6, true)) : one(hex(1, 2, false));
      case 'u':
        return one(hex(4, 4, false));
      default:
        break;
    }
    if ((c >= '1' && c <= '9') || c == 'k') refuse("back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) refuse("an unknown escape");
    return one(c);
  }

  uint32_t hex(size_t least, size_t most, bool braces) {
    uint32_t value = 0;
    size_t count = 0;
    for (; count < most && at_ < pattern_.size(); ++count, ++at_) {
      const char c = pattern_[at_];
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (count < least || value > 0x10FFFF || (braces && !take("}"))) refuse("a bad hexadecimal escape");
    return value;
  }

  // After '[': up to and including the closing bracket.
  Bounds bracket(int depth) {
    if (depth > kMaxNesting) refuse("character classes are nested too deeply");
    const bool negated = take("^");
    Bounds set, left;
    bool intersecting = false;
    for (bool first = true; first || !peek("]"); first = false) {
      if (at_ >= pattern_.size()) refuse("a character class is not closed");
      if (take("[:")) {
        set = unite(set, posix());
      } else if (take("[")) {
        set = unite(set, bracket(depth + 1));
      } else if (take("&&")) {
        left = intersecting ? intersect(left, set) : set;
        intersecting = true;
        set.clear();
      } else {
        const Bounds from = take("\\") ? escape() : literal();
        if (single(from) && peek("-") && !peek("-]") && at_ + 1 < pattern_.size()) {
          ++at_;
          const Bounds to = take("\\") ? escape() : literal();
          if (!single(to) || to[0] < from[0]) refuse("a bad range in a character class");
          set = unite(set, {from[0], to[1]});
        } else {
          set = unite(set, from);
        }
      }
    }
    ++at_;
    if (intersecting) set = intersect(left, set);
    return negated ? complement(set) : set;
  }
  static bool single(const Bounds& set) { return set.size() == 2 && set[1] == set[0] + 1; }
  Bounds literal() {
    const uint32_t code = take_code();
    return {code, code + 1};
  }
  Bounds posix() {
    const bool negated = take("^");
    struct Named {
      const char* text;
      CategoryMask mask;
    };
    constexpr Named kNames[] = {{"digit:]", mask_of(Category::Nd)},
                                {"upper:]", mask_of(Category::Lu)},
                                {"cntrl:]", mask_of(Category::Cc)},
                                {"punct:]", kPunctuation | kSymbol}};
    if (take("space:]")) return negated ? complement(white_space_set()) : white_space_set();
    for (const Named& name : kNames) {
      if (take(name.text)) return category_set(negated ? ~name.mask : name.mask);
    }
    refuse("an unknown [:class:]");
  }

  uint32_t here() const { return static_cast<uint32_t>(out_.steps_.size()); }
  uint32_t add(Regex::Op op, uint32_t a = 0, uint32_t b = 0) {
    if (out_.steps_.size() >= kMaxSteps) refuse("the pattern is too large");
    out_.steps_.push_back({op, a, b, op == Regex::Op::kSplit ? out_.num_splits_++ : 0});
    return here() - 1;
  }
  // Sets the ways of a split: into the body or past it.
  void choose(uint32_t split, uint32_t body, uint32_t past, bool lazy) {
    out_.steps_[split].a = lazy ? past : body;
    out_.steps_[split].b = lazy ? body : past;
  }

  void emit(const Node& tree) {
    switch (tree.kind) {
      case Kind::kEmpty:
        return;
      case Kind::kSet:
        add(Regex::Op::kSet, tree.set);
        return;
      case Kind::kAssertion:
        add(tree.op);
        return;
      case Kind::kSequence:
        for (const Tree& child : tree.children) emit(*child);
        return;
      case Kind::kAlternatives: {
        std::vector<uint32_t> exits;
        for (size_t i = 0; i < tree.children.size(); ++i) {
          const bool last = i + 1 == tree.children.size();
          const uint32_t split = last ? 0 : add(Regex::Op::kSplit);
          emit(*tree.children[i]);
          if (last) break;
          exits.push_back(add(Regex::Op::kJump));
          choose(split, split + 1, here(), false);
        }
        for (const uint32_t jump : exits) out_.steps_[jump].a = here();
        return;
      }
      case Kind::kGroup: {
        const uint32_t group = add(tree.op);
        emit(*tree.children[0]);
        add(Regex::Op::kMatch);
        out_.steps_[group].a = group + 1;
        out_.steps_[group].b = here();
        return;
      }
      case Kind::kRepeat: {
        for (uint32_t i = 0; i < tree.least; ++i) emit(*tree.children[0]);
        if (tree.most == kUnbounded) {
          const uint32_t split = add(Regex::Op::kSplit);
          emit(*tree.children[0]);
          add(Regex::Op::kJump, split);
          choose(split, split + 1, here(), tree.lazy);
          return;
        }
        std::vector<uint32_t> splits;
        for (uint32_t i = tree.least; i < tree.most; ++i) {
          splits.push_back(add(Regex::Op::kSplit));
          emit(*tree.children[0]);
        }
        for (const uint32_t split : splits) choose(split, split + 1, here(), tree.lazy);
        return;
      }
    }
  }

  // Marks the bytes with which a match from `step` can begin (recursion only along splits, each step once).
  void first_bytes(uint32_t step, std::vector<bool>& seen) {
    for (; !seen[step];) {
      seen[step] = true;
      const Regex::Step& s = out_.steps_[step];
      switch (s.op) {
        case Regex::Op::kSet: {
          const Bounds& bounds = out_.sets_[s.a].bounds;
          for (size_t i = 0; i + 1 < bounds.size(); i += 2) {
            for (int byte = lead_byte(bounds[i]); byte <= lead_byte(bounds[i + 1] - 1); ++byte) mark(byte);
          }
          return;
        }
        case Regex::Op::kMatch:  // an empty match can be anywhere
          for (int byte = 0; byte < 256; ++byte) mark(byte);
          return;
        case Regex::Op::kSplit:
          first_bytes(s.b, seen);
          step = s.a;
          break;
        case Regex::Op::kJump:
        case Regex::Op::kAtomic:
          if (s.op == Regex::Op::kAtomic) first_bytes(s.b, seen);  // in case the body matches nothing
          step = s.a;
          break;
        case Regex::Op::kAhead:
        case Regex::Op::kNotAhead:
          step = s.b;
          break;
        default:
          ++step;
      }
    }
  }
  void mark(int byte) {  // continuation bytes begin nothing
    if ((byte & 0xC0) != 0x80) out_.first_bytes_[byte] = true;
  }
  static int lead_byte(uint32_t code) {
    std::string text;
    append_utf8(text, code);
    return static_cast<uint8_t>(text[0]);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  Regex& out_;
};

Regex::Regex(std::string_view pattern) { RegexCompiler(pattern, *this).compile(); }

}  // namespace ix
