// The generated tables, in a namespace of their own. Included by unicode.cpp and normal_form.cpp only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace ix::unicode_data {
#include "text/unicode_tables.inc"
}  // namespace ix::unicode_data
