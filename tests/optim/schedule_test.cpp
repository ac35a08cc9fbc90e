#include "optim/schedule.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"

using fovea::ConfigError;
using fovea::optim::Schedule;
using fovea::optim::ScheduleConfig;
using fovea::optim::ScheduleKind;

namespace {

// The literals are decimal renderings of f64 values; a rate is good to rounding.
constexpr double kRounding = 1e-14;

bool near(double a, double b) {
  return std::fabs(a - b) <= kRounding * std::max(std::fabs(a), std::fabs(b));
}

Schedule make(ScheduleKind kind, double lr, std::int64_t warmup, std::int64_t decay, double ratio,
              std::int64_t max_steps, int width = 0) {
  ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = warmup;
  config.decay_steps = decay;
  config.min_lr_ratio = ratio;
  return Schedule(lr, config, max_steps, width);
}

}  // namespace

TEST_CASE("inverse_sqrt peaks at lr when the warmup ends") {
  // spa.md 2.2, Small: eta_max 5e-4, warmup 4000.
  const Schedule s = make(ScheduleKind::inverse_sqrt, 5e-4, 4000, 0, 0, 100000);
  CHECK(near(s.at(3999), 5e-4));
  CHECK(near(s.at(0), 5e-4 / 4000));
  CHECK(near(s.at(1999), 2.5e-4));
  CHECK(near(s.at(15999), 2.5e-4));
}

TEST_CASE("inverse_sqrt without a warmup falls from its first step") {
  const Schedule s = make(ScheduleKind::inverse_sqrt, 1.0, 0, 0, 0, 100);
  CHECK(s.at(0) == 1.0);
  CHECK(near(s.at(3), 0.5));
}

TEST_CASE("inverse_sqrt_literal is the printed formula, far too small") {
  // spa.md 2.2: peaks 7.9e-6, 4.7e-6, 1.6e-6 for eta_max 5e-4, 3e-4, 1e-4 at t = 4000.
  CHECK(near(make(ScheduleKind::inverse_sqrt_literal, 5e-4, 4000, 0, 0, 0).at(3999),
             5e-4 / std::sqrt(4000.0)));
  CHECK(std::fabs(make(ScheduleKind::inverse_sqrt_literal, 5e-4, 4000, 0, 0, 0).at(3999) - 7.9e-6) <
        5e-8);
  CHECK(std::fabs(make(ScheduleKind::inverse_sqrt_literal, 3e-4, 4000, 0, 0, 0).at(3999) - 4.7e-6) <
        5e-8);
  CHECK(std::fabs(make(ScheduleKind::inverse_sqrt_literal, 1e-4, 4000, 0, 0, 0).at(3999) - 1.6e-6) <
        5e-8);
}

TEST_CASE("noam with factor 1 peaks at 7.0e-4 for width 512") {
  CHECK(std::fabs(make(ScheduleKind::noam, 1.0, 4000, 0, 0, 0, 512).at(3999) - 7.0e-4) < 2e-6);
  CHECK(std::fabs(make(ScheduleKind::noam, 5e-4, 4000, 0, 0, 0, 512).at(3999) - 3.5e-7) < 2e-9);
  CHECK_THROWS_AS(make(ScheduleKind::noam, 1.0, 4000, 0, 0, 0, 0), ConfigError);
}

TEST_CASE("cosine follows the reference trajectory") {
  // lr 3e-3, warmup 4, decay 20, ratio 0.1: the rates of an independent implementation.
  const Schedule s = make(ScheduleKind::cosine, 0.003, 4, 20, 0.1, 1000);
  const std::vector<double> expected = {0.00075,
                                        0.0015,
                                        0.0022500000000000003,
                                        0.003,
                                        0.002974060128544361,
                                        0.0028972373688902374,
                                        0.002772483976608436,
                                        0.002604594154601839,
                                        0.002400019814576463,
                                        0.0021666226336928716,
                                        0.0019133719347217736,
                                        0.00165};
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(near(s.at(static_cast<std::int64_t>(i)), expected[i]));
  CHECK(near(s.at(19), 0.0003));
  CHECK(near(s.at(500), 0.0003));
}

TEST_CASE("cosine without decay_steps ends at max_steps") {
  const Schedule s = make(ScheduleKind::cosine, 1.0, 0, 0, 0.0, 10);
  CHECK(near(s.at(4), 0.5));
  CHECK(s.at(9) == 0.0);
}

TEST_CASE("linear falls by a straight line") {
  const Schedule s = make(ScheduleKind::linear, 1.0, 2, 12, 0.5, 100);
  CHECK(s.at(0) == 0.5);
  CHECK(s.at(1) == 1.0);
  CHECK(near(s.at(6), 0.75));
  CHECK(near(s.at(11), 0.5));
  CHECK(near(s.at(50), 0.5));
}

TEST_CASE("wsd is flat until its decay, which ends at max_steps") {
  const Schedule s = make(ScheduleKind::wsd, 1.0, 5, 20, 0.0, 100);
  CHECK(near(s.at(0), 0.2));
  CHECK(s.at(4) == 1.0);
  CHECK(s.at(79) == 1.0);
  CHECK(near(s.at(89), 0.5));
  CHECK(s.at(99) == 0.0);
  // Without decay_steps the decay takes a tenth of the run.
  const Schedule tenth = make(ScheduleKind::wsd, 1.0, 5, 0, 0.0, 100);
  CHECK(tenth.at(89) == 1.0);
  CHECK(near(tenth.at(94), 0.5));
}

TEST_CASE("constant keeps its rate after the warmup") {
  const Schedule s = make(ScheduleKind::constant, 2.0, 4, 0, 0.1, 0);
  CHECK(s.at(0) == 0.5);
  CHECK(s.at(3) == 2.0);
  CHECK(s.at(1000000) == 2.0);
}

TEST_CASE("a decay that cannot follow the warmup is refused") {
  CHECK_THROWS_AS(make(ScheduleKind::cosine, 1.0, 50, 40, 0.1, 1000), ConfigError);
  CHECK_THROWS_AS(make(ScheduleKind::wsd, 1.0, 50, 60, 0.1, 100), ConfigError);
  CHECK_THROWS_AS(make(ScheduleKind::cosine, 1.0, 0, 0, 0.1, 0), ConfigError);
}

TEST_CASE("a run that ends inside its warmup is allowed") {
  const Schedule s = make(ScheduleKind::cosine, 1.0, 100, 0, 0.1, 10);
  CHECK(near(s.at(9), 0.1));
}

TEST_CASE("only schedules whose shape hangs on max_steps forbid a longer run") {
  ScheduleConfig config;
  config.kind = ScheduleKind::cosine;
  CHECK(Schedule::depends_on_max_steps(config));
  config.decay_steps = 100;
  CHECK_FALSE(Schedule::depends_on_max_steps(config));
  config.kind = ScheduleKind::wsd;
  CHECK(Schedule::depends_on_max_steps(config));
  config.kind = ScheduleKind::inverse_sqrt;
  CHECK_FALSE(Schedule::depends_on_max_steps(config));
}
