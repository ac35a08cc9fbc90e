#include "study/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace fovea::study {

namespace {

constexpr int kFewestGroups = 3;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double median(std::vector<double> values) {
  FOVEA_ASSERT(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Timing time_on(Stream& stream, const std::function<void()>& work, const TimingPlan& plan) {
  Timing out;
  // The last quarter of the warm-up says how long a piece takes: the first pieces plan and capture.
  const auto warm = [&](double seconds, std::int64_t least) {
    const double start = now();
    std::int64_t done = 0;
    for (std::int64_t burst = 1; done < least || now() - start < seconds; burst *= 2) {
      for (std::int64_t i = 0; i < std::min<std::int64_t>(burst, 64); ++i, ++done)
        work();
      stream.synchronize();
    }
    out.warm_up += done;
    return (now() - start) / static_cast<double>(done);
  };
  warm(plan.warm_seconds * 0.75, plan.warm_least);
  const double piece = warm(plan.warm_seconds * 0.25, 1);

  const auto group = static_cast<std::int64_t>(
      std::clamp(std::ceil(plan.group_seconds / std::max(piece, 1e-9)), 1.0, 1e6));
  const auto groups = static_cast<std::int64_t>(std::max<double>(
      kFewestGroups, std::ceil(plan.seconds / std::max(piece * static_cast<double>(group), 1e-9))));
  std::vector<double> times;
  Event from = stream.record();
  double at = now();
  std::vector<Event> ends;
  for (std::int64_t i = 0; i < groups; ++i) {
    for (std::int64_t j = 0; j < group; ++j)
      work();
    if (stream.device().is_cuda()) {
      ends.push_back(stream.record());
      continue;
    }
    const double end = now();
    times.push_back((end - at) * 1e3);
    at = end;
  }
  if (plan.before_end) plan.before_end();
  stream.synchronize();
  for (const Event& end : ends) {
    times.push_back(Event::milliseconds(from, end));
    from = end;
  }
  out.ms = median(std::move(times)) / static_cast<double>(group);
  out.pieces = groups * group;
  return out;
}

Timing time_after(Stream& stream, const std::function<void()>& prepare,
                  const std::function<void()>& work, const TimingPlan& plan) {
  Timing out;
  const auto piece = [&] {
    prepare();
    const double start = now();
    const Event from = stream.record();
    work();
    const Event to = stream.record();
    if (stream.device().is_cuda()) return std::pair(0.0, std::pair(from, to));
    return std::pair((now() - start) * 1e3, std::pair(from, to));
  };
  const double start = now();
  while (out.warm_up < plan.warm_least || now() - start < plan.warm_seconds) {
    piece();
    stream.synchronize();
    ++out.warm_up;
  }
  const double each = (now() - start) / static_cast<double>(out.warm_up);
  const auto pieces = static_cast<std::int64_t>(
      std::clamp(std::ceil(plan.seconds / std::max(each, 1e-9)), double{kFewestGroups}, 1e4));
  std::vector<double> times;
  std::vector<std::pair<Event, Event>> ends;
  for (; out.pieces < pieces; ++out.pieces) {
    auto [milliseconds, events] = piece();
    times.push_back(milliseconds);
    ends.push_back(std::move(events));
  }
  if (plan.before_end) plan.before_end();
  stream.synchronize();
  for (std::size_t i = 0; stream.device().is_cuda() && i < ends.size(); ++i)
    times[i] = Event::milliseconds(ends[i].first, ends[i].second);
  out.ms = median(std::move(times));
  return out;
}

}  // namespace fovea::study
