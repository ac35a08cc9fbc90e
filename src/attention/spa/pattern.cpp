#include "attention/spa/pattern.h"

#include <algorithm>
#include <cmath>

#include "attention/spa/deck.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

// Half up, as everywhere in spa.md.
int rounded(double x) {
  return static_cast<int>(std::floor(x + 0.5));
}

// Which entries are not zero, and their size; 0: that which gives each row squares that sum to 1.
struct Support {
  std::vector<bool> on;
  double size = 0;
};

struct Draw {
  const PatternChoice& c;
  std::uint64_t seed;
  std::string_view name;

  std::string stream(const char* of) const { return cat(name, ".", of); }
  std::size_t at(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(c.out) +
           static_cast<std::size_t>(column);
  }
  Support none() const {
    return {std::vector<bool>(static_cast<std::size_t>(c.in) * static_cast<std::size_t>(c.out))};
  }
};

Support random_iid(const Draw& d) {
  Support out = d.none();
  out.size = std::sqrt(d.c.s / d.c.out);
  const NamedStream stream(d.seed, d.stream("support"));
  for (std::size_t i = 0; i < out.on.size(); ++i)
    out.on[i] = stream.uniform(i) < 1 / d.c.s;
  return out;
}

// `count` different columns of `columns`, any set equally likely.
std::vector<int> choose(const NamedStream& stream, std::uint64_t first, int count, int columns) {
  std::vector<int> all(static_cast<std::size_t>(columns));
  for (int i = 0; i < columns; ++i)
    all[static_cast<std::size_t>(i)] = i;
  for (int i = 0; i < count; ++i) {
    const auto rest = static_cast<std::uint64_t>(columns - i);
    const auto j =
        static_cast<std::size_t>(i) + stream.below(first + static_cast<std::uint64_t>(i), rest);
    std::swap(all[static_cast<std::size_t>(i)], all[j]);
  }
  all.resize(static_cast<std::size_t>(count));
  return all;
}

Support random_exact(const Draw& d) {
  Support out = d.none();
  const int count = std::max(1, rounded(d.c.out / d.c.s));
  Deck deck(d.c.out, d.seed, d.stream("support"));
  const NamedStream stream(d.seed, d.stream("support"));
  for (int row = 0; row < d.c.in; ++row) {
    const auto first = static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(d.c.out);
    for (const int column : d.c.deck ? deck.deal(count) : choose(stream, first, count, d.c.out))
      out.on[d.at(row, column)] = true;
  }
  return out;
}

// Blocks of one row of blocks: the second term lets every column of blocks be used.
int blocks_of_row(const PatternChoice& c) {
  const int rows = c.in / c.b_r, columns = c.out / c.b_c;
  return std::clamp(std::max(rounded((1 - c.sparsity) * columns), (columns + rows - 1) / rows), 1,
                    columns);
}

Support block(const Draw& d) {
  Support out = d.none();
  const int rows = d.c.in / d.c.b_r, columns = d.c.out / d.c.b_c, count = blocks_of_row(d.c);
  Deck deck(columns, d.seed, d.stream("support"));
  const NamedStream stream(d.seed, d.stream("support"));
  if (d.c.bernoulli) out.size = std::sqrt(1 / (1 - d.c.sparsity) / d.c.out);
  for (int row = 0; row < rows; ++row) {
    std::vector<int> chosen;
    for (int column = 0; d.c.bernoulli && column < columns; ++column) {
      if (stream.uniform(static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(columns) +
                         static_cast<std::uint64_t>(column)) < 1 - d.c.sparsity)
        chosen.push_back(column);
    }
    if (!d.c.bernoulli) chosen = deck.deal(count);
    for (const int column : chosen) {
      for (int i = 0; i < d.c.b_r; ++i) {
        for (int j = 0; j < d.c.b_c; ++j)
          out.on[d.at(row * d.c.b_r + i, column * d.c.b_c + j)] = true;
      }
    }
  }
  return out;
}

Support banded(const Draw& d) {
  Support out = d.none();
  const int before = d.c.half_band ? d.c.w : d.c.w / 2;
  const int features = d.c.half_band ? 2 * d.c.w + 1 : d.c.w;
  for (int column = 0; column < d.c.out; ++column) {
    const int first =
        static_cast<int>(static_cast<std::int64_t>(column) * d.c.in / d.c.out) - before;
    for (int row = first; row < first + features; ++row) {
      const bool inside = row >= 0 && row < d.c.in;
      if (inside || !d.c.clip) out.on[d.at((row + d.c.in) % d.c.in, column)] = true;
    }
  }
  return out;
}

// Columns of level l, from 1: half of them for the last, half of the rest before it, and so on; the
// first has as many as the second.
int columns_of_level(const PatternChoice& c, int level) {
  return c.out >> (c.levels - std::max(level, 2) + 1);
}

Support hierarchical(const Draw& d) {
  Support out = d.none();
  int first = 0;
  for (int level = 1; level <= d.c.levels; ++level) {
    const int columns = d.c.levels == 1 ? d.c.out : columns_of_level(d.c, level);
    const int groups = 1 << level;
    for (int row = 0; row < d.c.in; ++row) {
      const int group = row / (d.c.in / groups), width = columns / groups;
      for (int j = 0; j < width; ++j)
        out.on[d.at(row, first + group * width + j)] = true;
    }
    first += columns;
  }
  return out;
}

// Filters, and how far one is moved from column to column.
struct Conv {
  int filters, step;
  explicit Conv(const PatternChoice& c)
      : filters(std::max(1, 4 * c.out / c.in)), step(filters * c.in / c.out) {}
};

// Signs are shared: entry t of filter f is the same number in every column.
std::vector<double> convolution(const Draw& d) {
  const Conv conv(d.c);
  const int places = d.c.in / conv.step;
  const double size = std::sqrt(static_cast<double>(conv.step) / (conv.filters * d.c.w));
  const NamedStream stream(d.seed, d.stream("values"));
  std::vector<double> out(static_cast<std::size_t>(d.c.in) * static_cast<std::size_t>(d.c.out));
  for (int f = 0; f < conv.filters; ++f) {
    for (int t = 0; t < d.c.w; ++t) {
      const auto i = static_cast<std::uint64_t>(f) * static_cast<std::uint64_t>(d.c.w) +
                     static_cast<std::uint64_t>(t);
      const double value = size * (d.c.gaussian              ? stream.normal(i)
                                   : stream.below(i, 2) == 0 ? 1.0
                                                             : -1.0);
      for (int p = 0; p < places; ++p)
        out[d.at((p * conv.step + t) % d.c.in, f * places + p)] = value;
    }
  }
  return out;
}

std::vector<double> signed_values(const Draw& d, const Support& support) {
  const NamedStream stream(d.seed, d.stream("values"));
  std::vector<double> out(support.on.size());
  for (int row = 0; row < d.c.in; ++row) {
    int count = 0;
    for (int column = 0; column < d.c.out; ++column)
      count += support.on[d.at(row, column)] ? 1 : 0;
    const double size = support.size > 0 ? support.size : 1 / std::sqrt(static_cast<double>(count));
    for (int column = 0; column < d.c.out; ++column) {
      const std::size_t i = d.at(row, column);
      if (!support.on[i]) continue;
      out[i] = size * (d.c.gaussian ? stream.normal(i) : stream.below(i, 2) == 0 ? 1.0 : -1.0);
    }
  }
  return out;
}

std::vector<double> values_of(const Draw& d) {
  switch (d.c.kind) {
    case PatternKind::random_iid:
      return signed_values(d, random_iid(d));
    case PatternKind::random_exact:
      return signed_values(d, random_exact(d));
    case PatternKind::block:
      return signed_values(d, block(d));
    case PatternKind::banded:
      return signed_values(d, banded(d));
    case PatternKind::hierarchical:
      return signed_values(d, hierarchical(d));
    case PatternKind::conv:
      return convolution(d);
    case PatternKind::identity:
      break;
  }
  std::vector<double> out(static_cast<std::size_t>(d.c.in) * static_cast<std::size_t>(d.c.out));
  for (int i = 0; i < d.c.in; ++i)
    out[d.at(i, i)] = 1;
  return out;
}

}  // namespace

std::vector<double> draw_projection(const PatternChoice& choice, std::uint64_t seed,
                                    std::string_view name) {
  FOVEA_ASSERT(!misfit_of(choice));
  const Draw d{choice, seed, name};
  std::vector<double> values = values_of(d);
  if (!choice.feature_perm) return values;
  const Permutation order(static_cast<std::uint64_t>(choice.in), seed, d.stream("features"));
  std::vector<double> out(values.size());
  for (int row = 0; row < choice.in; ++row) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(d.at(row, 0));
    std::copy(from, from + choice.out,
              out.begin() + static_cast<std::ptrdiff_t>(order.at(static_cast<std::uint64_t>(row)) *
                                                        static_cast<std::uint64_t>(choice.out)));
  }
  return out;
}

}  // namespace fovea::attention::spa
