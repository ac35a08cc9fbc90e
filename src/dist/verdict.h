#pragma once
// What a rank tells the launcher that started it when the run cannot go on: whose failure it is.
// Exit codes alone would not do, since all ranks end with the same one.

#include <string>
#include <vector>

#include "core/error.h"

namespace fovea::dist {

struct Verdict {
  int by = -1;       // the rank that says so
  int culprit = -1;  // the rank that failed, perhaps itself; -1: none alone
  ExitCode code = ExitCode::communication;
  std::string message;
  bool before_start = false;  // the ranks had not met
};

// Writes it to a pipe that several ranks share, in one piece or not at all, and without waiting; a
// long message is cut. A descriptor of -1: nobody wants to know.
void send_verdict(int descriptor, const Verdict& verdict) noexcept;
// Takes the whole ones off the front of what came out of the pipe.
std::vector<Verdict> take_verdicts(std::string& bytes);

}  // namespace fovea::dist
