#pragma once
// A CLS token before every example of a source with classes: what model.pool: cls reads.

#include <memory>
#include <string>
#include <utility>

#include "core/text.h"
#include "data/source.h"

namespace fovea::data {

class WithCls final : public Source {
 public:
  // `cls` is the token's id; examples are one token longer than the inner source's.
  WithCls(std::unique_ptr<Source> inner, std::int32_t cls) : inner_(std::move(inner)), cls_(cls) {}

  std::int64_t size() const override { return inner_->size(); }
  int seq_len() const override { return inner_->seq_len() + 1; }
  int classes() const override { return inner_->classes(); }
  bool is_padded() const override { return inner_->is_padded(); }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override {
    inner_->get(i, epoch, example);
    example.tokens.insert(example.tokens.begin(), cls_);
  }
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override {
    return inner_->target_tokens(i, epoch);
  }
  std::vector<Guess> guesses(std::int64_t examples) const override {
    return inner_->guesses(examples);
  }
  std::string summary() const override {
    return cat(inner_->summary(), ", each behind a CLS token (id ", cls_, ")");
  }
  std::string fingerprint() const override { return inner_->fingerprint(); }

 private:
  std::unique_ptr<Source> inner_;
  std::int32_t cls_;
};

}  // namespace fovea::data
