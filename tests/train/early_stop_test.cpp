#include "train/early_stop.h"

#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

using fovea::train::EarlyStop;

TEST_CASE("patience counts evaluations without improvement in a row") {
  EarlyStop stop(2, false);
  CHECK(stop.update(3.0, 10));
  CHECK_FALSE(stop.update(3.0, 20));
  CHECK_FALSE(stop.gives_up());
  CHECK(stop.update(2.9, 30));
  CHECK_FALSE(stop.update(2.95, 40));
  CHECK_FALSE(stop.update(2.95, 50));
  CHECK(stop.gives_up());
  CHECK(stop.best().step == 30);
  CHECK(stop.best().value == 2.9);
}

TEST_CASE("without patience it never gives up") {
  EarlyStop stop(0, false);
  stop.update(1, 1);
  for (int i = 2; i < 100; ++i)
    stop.update(2, i);
  CHECK_FALSE(stop.gives_up());
}

TEST_CASE("larger can be better") {
  EarlyStop stop(1, true);
  CHECK(stop.update(0.5, 1));
  CHECK(stop.update(0.6, 2));
  CHECK_FALSE(stop.update(0.55, 3));
  CHECK(stop.gives_up());
}

TEST_CASE("a value that is not finite is never the best") {
  EarlyStop stop(3, false);
  CHECK_FALSE(stop.update(std::numeric_limits<double>::quiet_NaN(), 1));
  CHECK_FALSE(stop.update(-std::numeric_limits<double>::infinity(), 2));
  CHECK(stop.update(1e9, 3));
}

TEST_CASE("a restored watcher gives up at the same evaluation") {
  EarlyStop straight(2, false), first(2, false);
  for (EarlyStop* stop : {&straight, &first}) {
    stop->update(1.0, 1);
    stop->update(1.5, 2);
  }
  EarlyStop second(2, false);
  second.restore(first.best());
  straight.update(1.2, 3);
  second.update(1.2, 3);
  CHECK(straight.gives_up());
  CHECK(second.gives_up());
}
