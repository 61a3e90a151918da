#!/usr/bin/env python3
# Writes csrc/text/unicode_tables.inc. The data is probed from the Rust `tokenizers` package (pip install tokenizers==0.23.2)
# instead of taken from one Unicode version, because its parts (regex, normalizers, Rust's char) carry different versions
# and the goal is to give the same ids as it does. Usage: make-unicode-tables.py [output].
import pathlib
import sys
import unicodedata
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
SCRIPTS = ("Han Hiragana Katakana Hangul Bopomofo Latin Greek Cyrillic Armenian Hebrew Arabic Devanagari Bengali Tamil "
           "Telugu Thai Lao Tibetan Myanmar Georgian Khmer Mongolian").split()
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CODES))


def regex_set(pattern):
    """Code points matching a one-character pattern, by the regex engine of the Split pre-tokenizer."""
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed")
    kept = {c for piece, _ in split.pre_tokenize_str(ALL) for c in map(ord, piece)}
    return [c for c in CODES if c not in kept]


def split_set(pre_tokenizer):
    """Code points at which the pre-tokenizer cuts "x?x"."""
    out = []
    for first in range(0, len(CODES), 65536):
        block = CODES[first:first + 65536]
        pieces = pre_tokenizer.pre_tokenize_str("x" + "x".join(map(chr, block)) + "x")
        cuts = {at for _, (start, end) in pieces for at in (start, end)}
        out += [c for i, c in enumerate(block) if 2 * i + 1 in cuts]
    return out


def map_each(normalizer, codes=CODES):
    """{code: replacement} where a normalizer changes a lone code point."""
    out = {}
    for first in range(0, len(codes), 4096):
        block = codes[first:first + 4096]
        text = "\x01".join(map(chr, block))
        images = normalizer.normalize_str(text).split("\x01")
        if len(images) != len(block):  # the separator itself is in the block
            images = [normalizer.normalize_str(chr(c)) for c in block]
        out.update((c, t) for c, t in zip(block, images) if t != chr(c))
    return out


def is_hangul_syllable(code):
    return 0xAC00 <= code < 0xD7A4


def boundaries(codes):
    out, previous = [], None
    for c in codes:
        if previous is None or c != previous + 1:
            if previous is not None:
                out.append(previous + 1)
            out.append(c)
        previous = c
    if previous is not None:
        out.append(previous + 1)
    return out


def runs(value_of, bits):
    out, previous = [], None
    for c in range(0x110000):
        value = value_of(c)
        if value != previous:
            out.append(c << bits | value)
            previous = value
    return out


def combining_classes(nfd, decomposed):
    """Canonical combining classes, found by which of two marks the normalizer puts first."""
    def swapped(pairs):
        text = "\x01".join(a + b for a, b in pairs)
        return [t != a + b for (a, b), t in zip(pairs, nfd.normalize_str(text).split("\x01"))]
    stable = [c for c in CODES if c > 0x2FF and not is_hangul_syllable(c) and c not in decomposed]
    marks = [c for c, s in zip(stable, swapped([("\u0345", chr(c)) for c in stable])) if s]  # 0 < ccc < 240
    known = {}
    for c in marks + [0x345]:
        known.setdefault(unicodedata.combining(chr(c)), c)
    levels = sorted(k for k in known if k)
    out = {0x345: 240}
    for c in marks:
        below = swapped([(chr(c), chr(known[k])) for k in levels])  # true where ccc(c) > k
        out[c] = levels[sum(below)]
    return out


def array(name, values, kind="uint32_t"):
    text, line = [], ""
    for v in values:
        item = f"{v}," if v < 10 else f"0x{v:X},"
        if len(line) + len(item) > 158:
            text.append(line)
            line = ""
        line += item
    text.append(line)
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join(text) + "\n};\n"


def main():
    parts = []
    category = {}
    for index, name in enumerate(CATEGORIES):
        if name != "Cs":
            category.update((c, index) for c in regex_set(rf"\p{{{name}}}"))
    assert len(category) == len(CODES)
    parts.append(array("kCategoryRuns", runs(lambda c: category.get(c, CATEGORIES.index("Cs")), 5)))

    for name in SCRIPTS:
        parts.append(array(f"kScript{name}", boundaries(regex_set(rf"\p{{{name}}}"))))
    parts.append(array("kWhiteSpace", boundaries(regex_set(r"\s"))))
    parts.append(array("kWord", boundaries(regex_set(r"\w"))))
    cut = set(split_set(pre_tokenizers.Whitespace()))
    parts.append(array("kRustWord", boundaries([c for c in CODES if c not in cut])))

    bert_clean = map_each(normalizers.BertNormalizer(True, False, False, False))
    parts.append(array("kBertSpace", boundaries(sorted([c for c, t in bert_clean.items() if t == " "] + [0x20]))))
    parts.append(array("kBertControl", boundaries(sorted(c for c, t in bert_clean.items() if t == ""))))
    parts.append(array("kBertPunctuation", boundaries(split_set(pre_tokenizers.Punctuation()))))
    parts.append(array("kNumeric", boundaries(split_set(pre_tokenizers.Digits()))))
    accents = map_each(normalizers.StripAccents())
    parts.append(array("kAccent", boundaries(sorted(c for c, t in accents.items() if t == ""))))
    bert_accents = map_each(normalizers.BertNormalizer(False, False, True, False))
    parts.append(array("kBertAccent", boundaries(sorted(c for c, t in bert_accents.items() if t == ""))))

    nfd, nfc, nfkd = normalizers.NFD(), normalizers.NFC(), normalizers.NFKD()
    pool, where = [], {}

    def decompositions(name, table):
        entries = []
        for c, text in sorted(table.items()):
            key = text
            if key not in where:
                where[key] = len(pool)
                pool.extend(map(ord, text))
            entries += [c, where[key] << 5 | len(text)]
            assert len(text) < 32
        parts.append(array(name, entries))

    canonical = {c: t for c, t in map_each(nfd).items() if not is_hangul_syllable(c)}
    compatible = {c: t for c, t in map_each(nfkd).items() if not is_hangul_syllable(c) and canonical.get(c) != t}
    decompositions("kCanonical", canonical)
    decompositions("kCompatible", compatible)
    parts.append(array("kDecomposed", pool))
    pairs = []
    for c, text in sorted(canonical.items()):
        if len(text) > 1 and nfc.normalize_str(text) == chr(c):
            first = nfc.normalize_str(text[:-1])
            assert len(first) == 1, hex(c)
            pairs.append((ord(first), ord(text[-1]), c))
    parts.append(array("kComposed", [v for p in sorted(pairs) for v in p]))
    classes = combining_classes(nfd, canonical)
    parts.append(array("kCombiningRuns", runs(lambda c: classes.get(c, 0), 8)))

    lower = map_each(normalizers.Lowercase())
    parts.append(array("kLower", [v for c, t in sorted(lower.items()) if len(t) == 1 for v in (c, ord(t))]))
    assert [c for c, t in lower.items() if len(t) > 1] == [0x130]  # "i" and U+0307, in unicode.cpp
    # Simple case folding beyond lowercase: what (?i:) has to accept in addition.
    extra = {c: ord(chr(c).casefold()) for c in CODES if len(chr(c).casefold()) == 1}
    extra = {c: f for c, f in extra.items() if f != ord(lower[c] if c in lower and len(lower[c]) == 1 else chr(c))}
    parts.append(array("kFoldExtra", [v for c, f in sorted(extra.items()) for v in (c, f)]))

    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent.parent / "csrc/text/unicode_tables.inc")
    head = (f"// Generated by scripts/make-unicode-tables.py from tokenizers {tokenizers.__version__}; do not edit.\n"
            "// Sets are sorted boundaries [start, end, start, end, ...); runs are (first code point << bits | value).\n")
    names = "".join(f'    {{"{s.lower()}", kScript{s}, std::size(kScript{s})}},\n' for s in SCRIPTS)
    target.write_text(head + "// clang-format off\n" + "".join(parts) +
                      "struct NamedSet {\n  const char* name;\n  const uint32_t* bounds;\n  size_t count;\n};\n"
                      "constexpr NamedSet kScripts[] = {\n" + names + "};\n// clang-format on\n")


main()
