#include "train/evaluator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.h"
#include "train/feed.h"

namespace fovea::train {

Ctx quiet_context(const Ctx& ctx) {
  Ctx quiet{ctx.device, ctx.stream, ctx.activations};
  quiet.precision = ctx.precision;
  quiet.seed = ctx.seed;
  quiet.fuse = ctx.fuse;
  return quiet;
}

Evaluator::Evaluator(Task& task, Split split, std::int64_t max_batches)
    : task_(task), split_(split), max_batches_(max_batches) {}

namespace {

// One batch's sums as bytes, and back: ranks of one run are of one build.
class BatchSums {
 public:
  static void write(const Metrics& batch, const std::vector<double>& losses, std::string& to) {
    put(to, batch.targets);
    put(to, losses.size());
    to.append(reinterpret_cast<const char*>(losses.data()), losses.size() * sizeof(double));
    put(to, batch.sums.size());
    for (const auto& [name, value] : batch.sums) {
      put(to, name.size());
      to += name;
      put(to, value);
    }
  }

  explicit BatchSums(std::string_view from) : left_(from) {}
  // Adds the next batch in the order of a run of one rank: loss by loss.
  void add_next(Metrics& into) {
    into.targets += take<std::int64_t>();
    for (auto n = take<std::size_t>(); n > 0; --n) {
      const auto loss = take<double>();
      into.loss_sum += loss;
      if (into.losses != nullptr) into.losses->push_back(loss);
    }
    for (auto n = take<std::size_t>(); n > 0; --n) {
      const auto size = take<std::size_t>();
      const std::string name(left_.substr(0, size));
      left_.remove_prefix(size);
      into.sums[name] += take<double>();
    }
  }

 private:
  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  T take() {
    FOVEA_ASSERT(left_.size() >= sizeof(T));
    T out;
    std::memcpy(&out, left_.data(), sizeof out);
    left_.remove_prefix(sizeof out);
    return out;
  }

  std::string_view left_;
};

}  // namespace

std::int64_t Evaluator::batches() const {
  const std::int64_t all = task_.held_out(split_).batches();
  return max_batches_ > 0 ? std::min(max_batches_, all) : all;
}

Evaluation Evaluator::run(const Ctx& ctx, std::vector<double>* losses, const Ranks& ranks) {
  const data::EvalLoader& loader = task_.held_out(split_);
  Evaluation out;
  out.batches = batches();
  out.metrics.losses = losses;
  Ctx quiet = quiet_context(ctx);
  const bool several = ranks.session->size() > 1;  // imagined ones have nothing to add
  std::string mine;
  for (std::int64_t i = 0; i < out.batches; ++i) {
    ranks.session->at("evaluate", i);
    const bool own = i % ranks.size() == ranks.rank();
    if (own) {
      const data::Batch batch = on_device(loader.at(i), ctx.stream, task_.vocabulary());
      if (several) {
        Metrics sums;
        std::vector<double> each;
        sums.losses = &each;
        task_.score(quiet, batch, sums);
        BatchSums::write(sums, each, mine);
      } else {
        task_.score(quiet, batch, out.metrics);
      }
    }
  }
  out.examples = loader.examples_in(out.batches);
  if (several) {
    const std::vector<std::string> all = ranks.session->gather(mine);
    std::vector<BatchSums> parts(all.begin(), all.end());
    for (std::int64_t i = 0; i < out.batches; ++i)
      parts[static_cast<std::size_t>(i % ranks.size())].add_next(out.metrics);
  }
  out.metrics.losses = nullptr;
  task_.count(split_, out.examples, out.metrics);
  out.report = task_.report(out.metrics);
  const auto watched = std::find_if(out.report.begin(), out.report.end(), [&](const auto& entry) {
    return entry.first == task_.watched();
  });
  FOVEA_ASSERT(watched != out.report.end());
  out.watched = watched->second;
  return out;
}

}  // namespace fovea::train
