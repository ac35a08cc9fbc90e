// Every method keeps its contract on a GPU. Skipped, visibly, without one.

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "contract_rows.h"
#include "core/cuda_runtime.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::attention;
using fovea::test::check_rows;

TEST_CASE("every registered method keeps the contract on a GPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const auto gpu = std::make_shared<contract::Place>(Device{Device::Kind::cuda, 0});
  for (const AttentionSpec& spec : attention_specs()) {
    CAPTURE(spec.name);
    check_rows(check_contract(spec, {}, gpu));
  }
}
