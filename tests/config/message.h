#pragma once
// What a ConfigError says.

#include <string>

#include "core/error.h"

namespace fovea::test {

// The message of the ConfigError that `call` throws, or "nothing was thrown".
template <class F>
std::string message(F&& call) {
  try {
    call();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace fovea::test
