#pragma once
// Runs of several processes on the CPU, as a user starts them, and what they left.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/text.h"
#include "data/temp_folder.h"
#include "process.h"

namespace fovea::test {

using Words = std::vector<std::string>;

inline Words operator+(Words all, const Words& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// fovea train of the smoke config into `out`.
inline Words training(const std::string& out, const Words& more = {}) {
  return Words{FOVEA_BINARY,
               "train",
               FOVEA_SOURCE_DIR "/configs/smoke/lm.yaml",
               "out_dir=" + out,
               "eval.interval=10",
               "ckpt.interval=10",
               "train.threads=1"} +
         more;
}

inline Finished train(const std::string& out, const Words& more, const When& when = {}) {
  return run_program(training(out, more), when);
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The weights of that step and all metrics.
inline void check_equal(const std::string& run, const std::string& reference, const char* step) {
  const std::string model = cat("/ckpt/step_", step, "/model.safetensors");
  CHECK(bytes_of(run + model) == bytes_of(reference + model));
  CHECK(bytes_of(run + "/metrics.jsonl") == bytes_of(reference + "/metrics.jsonl"));
}

// The process of a rank: the launcher's children are in the order of ranks.
inline pid_t rank_of(pid_t launcher, int rank) {
  std::ifstream list(cat("/proc/", launcher, "/task/", launcher, "/children"));
  pid_t child = 0;
  for (int i = 0; i <= rank; ++i)
    list >> child;
  return child;
}

// The names in a folder, sorted.
inline Words names_in(const std::string& folder) {
  Words out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

// A port of this machine that nobody has now.
inline int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(descriptor, any, size) == 0);
  REQUIRE(::getsockname(descriptor, any, &size) == 0);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

// A shell's variables that make a process a rank of `size`, as another launcher would.
inline Words as_rank(int rank, int size, int port, const Words& command) {
  return Words{"env", cat("FOVEA_RANK=", rank), cat("FOVEA_WORLD_SIZE=", size),
               cat("FOVEA_RENDEZVOUS=127.0.0.1:", port), "FOVEA_TOKEN=0123456789abcdef"} +
         command;
}

// Runs all of them at once; what became of each.
inline std::vector<Finished> run_together(const std::vector<Words>& commands) {
  std::vector<Finished> out(commands.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < commands.size(); ++i)
    threads.emplace_back([&, i] { out[i] = run_program(commands[i]); });
  for (std::thread& thread : threads)
    thread.join();
  return out;
}

}  // namespace fovea::test
