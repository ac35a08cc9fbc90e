#pragma once
// The inputs of a method that take gradients, by the names of their gradients in files and checks.

#include <string_view>

#include "attention/attention.h"

namespace fovea::attention::contract {

struct NamedInput {
  std::string_view gradient;
  Var AttentionInput::*input;
};

inline constexpr NamedInput kNamedInputs[] = {
    {"grad.q", &AttentionInput::q},
    {"grad.k", &AttentionInput::k},
    {"grad.v", &AttentionInput::v},
    {"grad.x", &AttentionInput::x},
    {"grad.bias", &AttentionInput::bias},
    {"grad.q_global", &AttentionInput::q_global},
    {"grad.k_global", &AttentionInput::k_global},
    {"grad.v_global", &AttentionInput::v_global},
};

}  // namespace fovea::attention::contract
