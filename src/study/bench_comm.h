#pragma once
// `fovea bench comm`: how fast the ranks of a run add up and exchange tensors, beside what their
// link carries.

#include <cstdint>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/world.h"
#include "study/link.h"
#include "train/json_text.h"

namespace fovea::study {

struct CommTime {
  std::string operation;    // "all_reduce f32", "all_reduce bf16", "tree f32", "exchange"
  std::int64_t bytes = 0;   // of a rank's buffer
  double ms = 0;            // of one call: the median over groups, each the slowest rank's
  std::int64_t pieces = 0;  // timed
  // What has to cross each rank's link in one direction, over `bytes`: 2 (n - 1) / n of a
  // reduction, 1 of an exchange.
  double share = 1;

  double rate() const { return static_cast<double>(bytes) / ms * 1e3; }  // bytes/s
  double bus_rate() const { return share * rate(); }
};

struct CommBench {
  std::string device;   // its name
  std::string library;  // "NCCL 2.28.9", "Gloo"
  int ranks = 0;
  Link link;
  std::vector<CommTime> times;
};

struct CommOptions {
  std::vector<std::int64_t> bytes;  // of a buffer; whole multiples of 4
  double seconds = 0.3;             // timed of each, at least, and before that warmed up
};

// For each size every operation there is for this number of ranks, taking turns: the tree needs a
// power of two, an exchange with rank ^ 1 an even number. All ranks call it and get the same times.
// Throws OutOfMemory, CommunicationError.
std::vector<CommTime> time_comm(dist::Communicator& ranks, Stream& stream,
                                const CommOptions& options);

// Joins the other ranks of the run, times, and leaves. All of them call it. Throws
// CommunicationError, DeviceError, OutOfMemory, and ends the process if another rank is lost.
CommBench bench_comm(const dist::World& world, Device device, const CommOptions& options);

// The record's fields: device, library, ranks, link, link_rate and operations (a list).
void add_to(train::JsonObject& record, const CommBench& bench);
std::string text_of(const CommBench& bench);

}  // namespace fovea::study
