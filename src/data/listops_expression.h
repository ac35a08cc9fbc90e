#pragma once
// ListOps: nested operations on lists of digits, whose value is the label.
// Source: Nangia and Bowman 2018; Long Range Arena (Tay et al. 2021); data.md 5.2.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::data::listops {

// Token ids; 0 is padding.
constexpr std::uint8_t kMin = 1, kMax = 2, kMed = 3;
constexpr std::uint8_t kSum = 4;    // modulo 10
constexpr std::uint8_t kClose = 5;  // "]"
constexpr std::uint8_t kDigit = 6;  // of 0; that of d is kDigit + d
constexpr int kVocabulary = 16;
constexpr int kLabels = 10;

// An expression as its tokens, round brackets left out: "[MAX 2 9 [MIN 4 7 ] 0 ]". It is one digit,
// or an operator, one argument or more, and the closing bracket.
using Expression = std::vector<std::uint8_t>;

// The value of an operator's arguments, at least one: the least, the largest, the median (of an
// even number the mean of the two in the middle, rounded down), or the sum modulo 10.
int apply(std::uint8_t op, std::span<const std::uint8_t> arguments);

// Replaces `into` by the expression in `text`: tokens between spaces, round brackets in balance or
// absent. Returns its value. Throws IoError that says what is wrong, with the token's number, but
// not where the text is from.
int parse(std::string_view text, Expression& into);

// The tokens with one space between.
std::string tokens_text(std::span<const std::uint8_t> expression);
// As Long Range Arena writes them, with round brackets around every pair of a list's head and its
// next element: "( ( ( [MAX 2 ) 9 ) ] )".
std::string bracketed_text(std::span<const std::uint8_t> expression);

}  // namespace fovea::data::listops
