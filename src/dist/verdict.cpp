#include "dist/verdict.h"

#include <climits>
#include <cstdint>
#include <exception>
#include <string_view>

#include <unistd.h>

#include "dist/wire.h"

namespace fovea::dist {

namespace {

// With the numbers below PIPE_BUF: the pipe keeps such writes of several processes apart.
constexpr std::size_t kLongest = PIPE_BUF - 256;

}  // namespace

void send_verdict(int descriptor, const Verdict& verdict) noexcept {
  if (descriptor < 0) return;
  try {
    const std::string body = Body()
                                 .add(static_cast<std::uint64_t>(verdict.by))
                                 .add(static_cast<std::uint64_t>(verdict.culprit))
                                 .add(static_cast<std::uint64_t>(verdict.code))
                                 .add(std::string_view(verdict.message).substr(0, kLongest))
                                 .add(std::uint64_t{verdict.before_start ? 1U : 0U})
                                 .bytes();
    const std::string whole = Body().add(std::string_view(body)).bytes();
    [[maybe_unused]] const ssize_t written = ::write(descriptor, whole.data(), whole.size());
  } catch (const std::exception&) {
    // Without memory for a line the exit code has to do.
  }
}

std::vector<Verdict> take_verdicts(std::string& bytes) {
  std::vector<Verdict> out;
  while (true) {
    BodyReader reader(bytes);
    const std::string body = reader.text();
    if (!reader.good()) return out;
    bytes.erase(0, sizeof(std::uint64_t) + body.size());
    BodyReader fields(body);
    Verdict verdict;
    verdict.by = static_cast<int>(fields.number());
    verdict.culprit = static_cast<int>(fields.number());
    verdict.code = static_cast<ExitCode>(fields.number());
    verdict.message = fields.text();
    verdict.before_start = fields.number() != 0;
    if (fields.good()) out.push_back(std::move(verdict));
  }
}

}  // namespace fovea::dist
