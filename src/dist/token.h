#pragma once
// The secret of one start of a run, which tells its ranks from strangers. Never printed.

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::dist {

// 128 random bits, written to `folder`/.token for the other ranks, readable by the user alone: a
// new one each time, so that what is left of an earlier start is a stranger. The folder is made.
// Throws CommunicationError.
std::string make_token(const std::string& folder);
// What is there; empty: nothing yet.
std::string read_token(const std::string& folder);
std::string token_path(const std::string& folder);

// In a time that tells nothing about where the first difference is.
bool is_same_secret(std::string_view a, std::string_view b);

// 64 bits of the system's, for names that must not meet. Throws CommunicationError.
std::uint64_t random_number();

}  // namespace fovea::dist
