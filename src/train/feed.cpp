#include "train/feed.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/hash.h"
#include "train/ranks.h"

namespace fovea::train {

namespace {

// What the ops look at themselves on the CPU.
void require_known(const data::Batch& batch, Device device, std::int64_t vocabulary) {
  if (!device.acts_as_cuda() || vocabulary == 0) return;
  for (const Tensor* ids : {&batch.tokens, &batch.targets}) {
    const std::int32_t* const at = ids->data<std::int32_t>();
    for (std::int64_t i = 0; i < ids->numel(); ++i) {
      const bool target = ids == &batch.targets;
      if (target && batch.classes > 0) break;  // labels: their source answers for them
      if (at[i] < vocabulary && at[i] >= (target ? data::kIgnored : 0)) continue;
      throw IoError(cat("data: ", target ? "target" : "token", " id ", at[i], " in sample ",
                        batch.first_sample + i / ids->size(1), " at place ", i % ids->size(1),
                        ", but the model's vocabulary has ", vocabulary, " ids"));
    }
  }
}

}  // namespace

data::Batch on_device(const data::Batch& batch, Stream& stream, std::int64_t vocabulary) {
  if (stream.device().is_cpu()) return batch;
  require_known(batch, stream.device(), vocabulary);
  data::Batch out = batch;
  for (const auto field : data::kBatchTensors) {
    // Where meta stands for the CPU the targets stay in sight: how many of them count decides how
    // much memory the loss takes.
    if (field == &data::Batch::targets && stream.device() == kMeta) continue;
    Tensor& tensor = out.*field;
    if (tensor.defined()) tensor = tensor.to(stream.device(), stream);
  }
  return out;
}

Feed::Feed(const data::Loader& loader, Stream& stream, Staging& staging, MicroOrder order,
           std::uint64_t seed, std::int64_t vocabulary, int rank, int ranks)
    : loader_(loader),
      stream_(stream),
      staging_(staging),
      order_(order),
      seed_(seed),
      vocabulary_(vocabulary),
      rank_(rank),
      ranks_(ranks) {
  FOVEA_ASSERT(ranks >= 1 && rank >= 0 && rank < ranks && loader.micro_batches() >= ranks);
}

std::vector<std::int64_t> Feed::micro_batches(std::int64_t step) const {
  const auto [first, last] = micro_range(loader_.micro_batches(), rank_, ranks_);
  const std::int64_t share = last - first;
  std::vector<std::int64_t> out;
  for (std::int64_t i = first; i < last; ++i)
    out.push_back(i);
  if (order_ == MicroOrder::reverse) std::reverse(out.begin(), out.end());
  if (order_ == MicroOrder::shuffle) {
    const Permutation shuffled(static_cast<std::uint64_t>(share), seed_, cat("micro_order.", step));
    for (std::int64_t i = 0; i < share; ++i) {
      out[static_cast<std::size_t>(i)] =
          first + static_cast<std::int64_t>(shuffled.at(static_cast<std::uint64_t>(i)));
    }
  }
  return out;
}

data::Batch Feed::load(std::int64_t step, std::int64_t micro) {
  const auto start = std::chrono::steady_clock::now();
  const data::Batch batch = loader_.at(step, micro);
  note(batch);
  data::Batch out = staged(batch);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

// On a CUDA device the batch gets fixed addresses, which a captured graph reads.
data::Batch Feed::staged(const data::Batch& batch) {
  if (!stream_.device().acts_as_cuda()) return on_device(batch, stream_);
  require_known(batch, stream_.device(), vocabulary_);
  data::Batch out = batch;
  const auto stage = [&](Tensor data::Batch::*field) {
    const Tensor& host = batch.*field;
    if (!host.defined()) return;
    Tensor& own = on_device_.*field;
    const bool fits = own.defined() && own.shape() == host.shape() && own.dtype() == host.dtype();
    if (!fits) own = Tensor::empty(host.shape(), host.dtype(), stream_.device(), "batch");
    staging_.upload(own, host);
    out.*field = own;
  };
  for (const auto field : data::kBatchTensors)
    stage(field);
  return out;
}

void Feed::note(const data::Batch& batch) {
  const std::int64_t rows = batch.tokens.size(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    data::Xxh3 hash;
    const std::int64_t place = batch.index * rows + row;
    hash.update(&place, sizeof place);
    for (const auto field : data::kBatchTensors) {
      if (!(batch.*field).defined()) continue;
      const Tensor values = (batch.*field).slice(0, row, row + 1);
      hash.update(values.view().data, static_cast<std::size_t>(values.bytes()));
    }
    loaded_.hash += hash.value();
  }
  loaded_.tokens += batch.tokens.numel();
}

std::int64_t Feed::global_targets(std::int64_t step) const {
  const std::int64_t targets = loader_.target_tokens(step);
  if (targets < 1)
    throw IoError(cat("data: the global batch of step ", step + 1, " has no scored target"));
  return targets;
}

Feed::Loaded Feed::take_loaded() {
  return std::exchange(loaded_, {});
}

void Feed::finish_step(const Loaded& all) {
  data::Xxh3 chain;
  chain.update(&data_hash_, sizeof data_hash_);
  chain.update(&all.hash, sizeof all.hash);
  data_hash_ = chain.value();
  tokens_ += all.tokens;
}

void Feed::restore(std::uint64_t data_hash, std::int64_t tokens) {
  data_hash_ = data_hash;
  tokens_ = tokens;
  loaded_ = {};
}

double Feed::take_seconds() {
  return std::exchange(seconds_, 0.0);
}

}  // namespace fovea::train
