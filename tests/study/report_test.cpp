// What a report says of runs: none is dropped, and no spread is made up.

#include "study/report.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/temp_folder.h"

using namespace fovea;
using namespace fovea::test;
using study::Report;
using study::ReportInput;
using study::ReportRun;

namespace {

ReportRun finished(std::size_t cell, std::int64_t seed, double loss) {
  ReportRun run{cell, cell == 0 ? "standard" : "a|b", seed, "runs/x", {}, 0};
  run.record.state = "finished";
  run.record.metrics = {{"loss", loss}, {"targets", 100}};
  return run;
}

ReportRun missing(std::size_t cell, std::int64_t seed, const std::string& state,
                  const std::string& message, int code) {
  ReportRun run{cell, "a|b", seed, "runs/y", {}, code};
  run.record.state = state;
  run.record.message = message;
  run.record.step = 5;
  run.record.max_steps = 9;
  return run;
}

// Two cells of three seeds, all finished.
ReportInput two_cells() {
  ReportInput input;
  input.layout = {"trial", {"model.attention"}, {"standard"}, {}, study::Select::last};
  input.cells = {{"standard", {"standard"}}, {"a|b", {"a|b"}}};
  const double losses[2][3] = {{3.3902, 3.3961, 3.3888}, {3.4121, 3.4087, 3.4190}};
  for (std::size_t cell = 0; cell < 2; ++cell) {
    for (int seed = 0; seed < 3; ++seed)
      input.runs.push_back(finished(cell, seed + 1, losses[cell][seed]));
  }
  return input;
}

std::string line_with(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  if (at == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

TEST_CASE("a cell is compared with its baseline over the seeds that both have") {
  const Report report = make_report(two_cells(), false);
  REQUIRE(report.tables.size() == 1);
  const study::CellScore& score = report.tables[0].cells[1];
  // scipy.stats.ttest_rel, as in statistics_test.cpp
  CHECK(*score.test->t == doctest::Approx(4.242554541461858).epsilon(1e-10));
  CHECK(*score.test->p == doctest::Approx(0.051318628277749065).epsilon(1e-10));
  const std::string text = report_markdown(report);
  CHECK_MESSAGE(contains(text, "6 runs, 6 have finished."), text);
  CHECK(contains(line_with(text, "| standard |"), "| baseline |"));
  CHECK(contains(text,
                 "| a\\|b | 3 | 3.4133 | 0.00525 | [3.4002, 3.4263] | +0.02157 to standard "
                 "(3 pairs) | [-0.0003055, 0.043439] | 4.243 | 0.0513 |"));
}

TEST_CASE("p below five and one percent is marked") {
  ReportInput input = two_cells();
  input.runs[4].record.metrics[0].second = 3.4187;
  CHECK(contains(report_markdown(make_report(input, false)), " * |"));
  for (int seed = 0; seed < 3; ++seed)
    input.runs[static_cast<std::size_t>(3 + seed)].record.metrics[0].second += 1;
  CHECK(contains(report_markdown(make_report(input, false)), " ** |"));
}

TEST_CASE("failed and unfinished runs are shown and left out of the means") {
  ReportInput input = two_cells();
  input.runs[4] = missing(1, 2, "failed", "loss is not finite\nat step 5", 4);
  input.runs[5] = missing(1, 3, "stopped", "", 0);
  input.others.push_back(missing(0, 1, "failed", "old", 1));
  const Report report = make_report(input, false);
  CHECK(report.counts[1].finished == 1);
  CHECK(report.counts[1].failed == 1);
  CHECK(report.counts[1].unfinished == 1);
  const std::string text = report_markdown(report);
  CHECK_MESSAGE(contains(text, "6 runs, 4 have finished, 1 not yet, 1 failed."), text);
  CHECK(contains(text, "| a\\|b | 1 of 3 | 3.4121 | none: only 1 seed |  |"));
  CHECK(contains(text, "| a test needs 2 seeds in common, but there is 1 |"));
  CHECK(contains(text, "| a\\|b | 2 | failed | 4 | loss is not finite; at step 5 | runs/y |"));
  CHECK(contains(text, "| a\\|b | 3 | stopped |  | at step 5 of 9 | runs/y |"));
  CHECK(contains(text, "## Runs that are not in the study any more"));
  const std::string csv = report_csv(report);
  CHECK(contains(csv, "a|b,a|b,loss,3,1,1,1,1,3.4121,,,,,standard,1,"));
  CHECK(contains(csv,
                 "\"seed 2 failed with code 4: loss is not finite\nat step 5; seed 3 stopped: "
                 "at step 5 of 9\""));
}

TEST_CASE("a cell without a finished seed has no mean, and is still a line") {
  ReportInput input = two_cells();
  for (std::size_t i = 3; i < 6; ++i)
    input.runs[i] = missing(1, static_cast<std::int64_t>(i) - 2, "not started", "", 0);
  const std::string text = report_markdown(make_report(input, false));
  CHECK_MESSAGE(contains(text, "| a\\|b | 0 of 3 |  | none: no seed |  | to standard |  |"), text);
  input.runs.clear();
  CHECK(contains(report_csv(make_report(input, false)), "standard,standard,,0,0"));
}

TEST_CASE("a finished run whose loss is not finite is listed with the reason") {
  ReportInput input = two_cells();
  input.runs[3].record.metrics.erase(input.runs[3].record.metrics.begin());
  input.runs[3].record.message = "not finite: loss";
  const std::string text = report_markdown(make_report(input, false));
  CHECK(contains(text, "| a\\|b | 2 of 3 |"));
  CHECK(contains(text, "| a\\|b | 1 | finished |  | not finite: loss | runs/x |"));
}

TEST_CASE("counts are no scores, unless they are asked for; an unknown metric names the nearest") {
  ReportInput input = two_cells();
  CHECK(make_report(input, false).tables.size() == 1);
  input.layout.metrics = {"targets", "loss"};
  CHECK(make_report(input, false).tables[0].metric == "targets");
  input.layout.metrics = {"los"};
  CHECK(message_of([&] { make_report(input, false); }) ==
        "metrics: no run reports 'los'; did you mean loss?");
}

TEST_CASE("an accuracy has the error that its test set gives") {
  ReportInput input = two_cells();
  for (ReportRun& run : input.runs)
    run.record.metrics = {{"accuracy", 0.5}, {"targets", 10'000}};
  const Report report = make_report(input, false);
  CHECK(*report.tables[0].cells[0].binomial_error == doctest::Approx(0.005));  // data.md 12
  CHECK(contains(report_markdown(report), "| binomial error |"));
}

TEST_CASE("a baseline of some axes is the cell that differs in these only") {
  ReportInput input;
  input.layout = {"trial", {"kind", "n"}, {"a", std::nullopt}, {}, study::Select::last};
  for (const char* kind : {"a", "b"}) {
    for (const char* n : {"1", "2"})
      input.cells.push_back({cat(kind, "/", n), {kind, n}});
  }
  for (std::size_t cell = 0; cell < 4; ++cell)
    input.runs.push_back(finished(cell, 1, static_cast<double>(cell)));
  const Report report = make_report(input, false);
  CHECK(report.tables[0].cells[2].baseline == 0);
  CHECK(report.tables[0].cells[3].baseline == 1);
  CHECK(report.tables[0].cells[1].baseline == 1);
  CHECK_FALSE(report.tables[0].cells[1].test.has_value());
}

TEST_CASE("costs are means, memory the largest; results alone have no clocks") {
  ReportInput input = two_cells();
  input.root = "studies/trial";
  for (std::size_t i = 0; i < 3; ++i) {
    const auto factor = static_cast<double>(i + 1);
    input.runs[i].record.cost = {1000 * factor, 1024 * factor, 7e6, 8e6, 12'000, 60 * factor};
  }
  const Report report = make_report(input, false);
  const std::string text = report_markdown(report);
  CHECK_MESSAGE(contains(text, "| standard | 12.0k | 7.00M | 8.00M | 2.00k | 3.00 KiB | 2m00s |"),
                text);
  const Report results = make_report(input, true);
  CHECK(contains(report_markdown(results), "| standard | 12.0k | 7.00M | 8.00M |\n"));
  for (const std::string& plain :
       {report_markdown(results), report_csv(results), report_json(results)}) {
    for (const char* clock : {"tokens", "peak", "2m00s", "seconds", "studies/trial"})
      CHECK_MESSAGE(!contains(plain, clock), plain);
  }
}

TEST_CASE("JSON holds every number in full, and null where there is none") {
  ReportInput input = two_cells();
  input.runs.pop_back();
  input.runs.pop_back();
  const auto json = nlohmann::json::parse(report_json(make_report(input, false)));
  CHECK(json["metrics"]["loss"][0]["std"].get<double>() ==
        study::summarise(std::vector<double>{3.3902, 3.3961, 3.3888}).deviation);
  CHECK(json["metrics"]["loss"][1]["std"].is_null());
  CHECK(json["metrics"]["loss"][1]["test"]["why_none"] ==
        "a test needs 2 seeds in common, but there is 1");
  CHECK(json["runs"].size() == 4);
  CHECK(json["cells"][0]["planned"] == 3);
}
