#pragma once
// A method keeps the contract: what every test of one says of its rows.

#include <vector>

#include <doctest/doctest.h>

#include "attention/contract.h"

namespace fovea::test {

// Fails for each check that was not passed, and names it.
inline void check_rows(const std::vector<attention::ContractRow>& rows) {
  CHECK(rows.size() > 10);
  for (const attention::ContractRow& row : rows) {
    CHECK_MESSAGE(row.passed,
                  row.check << ": " << row.value << " > " << row.bound << " " << row.note);
  }
}

}  // namespace fovea::test
