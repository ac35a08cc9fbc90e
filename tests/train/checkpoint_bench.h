#pragma once
// A model of two parameters and a buffer, and its store, for tests of checkpoints.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "temporary.h"
#include "train/checkpoint.h"

namespace fovea::test {

class Toy final : public nn::Module {
 public:
  explicit Toy(std::int64_t width = 4, const char* name = "weight") {
    own(name, {3, width}, nn::Init::normal(1.0));
    own("bias", {3}, nn::Init::constant(0.5));
    buffer("fixed", Tensor::from(std::vector<double>{1, 2}, {2}, DType::f32));
    set_path("");
  }
};

// Element i of the first moments is i, of the second 2 i.
struct Bench {
  explicit Bench(std::int64_t width = 4, const char* name = "weight",
                 Precision precision = Precision::fp32, std::uint64_t seed = 3,
                 const optim::MomentCut& cut = {})
      : model(width, name) {
    ctx.precision = precision;
    ctx.seed = seed;
    store = std::make_unique<optim::ParameterStore>(ctx, model, optim::StoreMode::train,
                                                    std::span<const std::string>(),
                                                    std::span<const std::string>(), cut);
    if (precision != Precision::fp64) fill_moments(1);
  }
  void fill_moments(float by) {
    for (std::int64_t i = store->moments_begin(); i < store->moments_end(); ++i) {
      const std::int64_t at = i - store->moments_begin();
      store->first_moment().data<float>()[at] = by * static_cast<float>(i);
      store->second_moment().data<float>()[at] = by * static_cast<float>(2 * i);
    }
  }
  // Whether every moment of a parameter that the store holds is as fill_moments(1) left it.
  bool moments_are_right() const {
    for (const optim::Segment& segment : store->segments()) {
      const std::int64_t from = std::max(segment.begin, store->moments_begin());
      const std::int64_t to = std::min(segment.begin + segment.size, store->moments_end());
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t at = i - store->moments_begin();
        if (store->first_moment().data<float>()[at] != static_cast<float>(i) ||
            store->second_moment().data<float>()[at] != static_cast<float>(2 * i))
          return false;
      }
    }
    return true;
  }
  static train::RunState state() {
    train::RunState out;
    out.step = 7;
    out.config_yaml = "seed: 1\n";
    return out;
  }
  void save(const std::string& path) {
    train::save_checkpoint(ctx.stream, path, model, *store, state(), "{}\n");
  }
  Stream stream{kCpu, 1};
  CachingAllocator activations{memory_source(kCpu)};
  Ctx ctx{kCpu, stream, activations};
  Toy model;
  std::unique_ptr<optim::ParameterStore> store;
};

// What lies in a folder, by path, sorted.
inline std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> out;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder))
    out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace fovea::test
