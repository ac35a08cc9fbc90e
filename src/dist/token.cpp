#include "dist/token.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr std::size_t kBytes = 16;
constexpr std::string_view kSpace = " \t\r\n";

void fill_randomly(void* bytes, std::size_t size) {
  if (::getrandom(bytes, size, 0) != static_cast<ssize_t>(size))
    throw CommunicationError("the system gives no random numbers");
}

std::string random_token() {
  std::array<unsigned char, kBytes> random{};
  fill_randomly(random.data(), random.size());
  std::string out;
  for (const unsigned char byte : random) {
    out.push_back("0123456789abcdef"[byte >> 4]);
    out.push_back("0123456789abcdef"[byte & 15]);
  }
  return out;
}

// A new file with these bytes. 0 or an error number.
int write_private(const std::string& path, std::string_view bytes) {
  ::unlink(path.c_str());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno;
  const ssize_t written = ::write(file, bytes.data(), bytes.size());
  const int error = written == static_cast<ssize_t>(bytes.size()) ? 0 : written < 0 ? errno : EIO;
  return ::close(file) == 0 ? error : errno;
}

}  // namespace

std::string token_path(const std::string& folder) {
  return (std::filesystem::path(folder) / ".token").string();
}

std::string make_token(const std::string& folder) {
  std::string token = random_token();
  const std::string path = token_path(folder), temporary = cat(path, ".", ::getpid());
  std::error_code ignored;  // the file says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  int error = write_private(temporary, token);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return token;
  ::unlink(temporary.c_str());
  throw CommunicationError(cat(
      path, ": the run's token cannot be written there: ", std::generic_category().message(error),
      "; or set FOVEA_TOKEN, to one secret for all ranks"));
}

std::string read_token(const std::string& folder) {
  std::ifstream file(token_path(folder));
  std::string out{std::istreambuf_iterator<char>(file), {}};
  out.erase(out.find_last_not_of(kSpace) + 1);
  return out;
}

bool is_same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

std::uint64_t random_number() {
  std::uint64_t out = 0;
  fill_randomly(&out, sizeof out);
  return out;
}

}  // namespace fovea::dist
