// doctest's main, with skips that are seen and counted: the last line of every test program is
// "FOVEA_TESTS passed=N failed=N skipped=N", which scripts/test.sh adds up.

#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <cstdlib>

#include <doctest/doctest.h>

#include "skip.h"

namespace fovea::test {

namespace {
bool current_skipped = false;
int skipped = 0, passed = 0, failed = 0;
}  // namespace

void mark_skipped(const char* reason) {
  std::printf("[SKIPPED] %s: %s\n", doctest::detail::g_cs->currentTest->m_name, reason);
  current_skipped = true;
}

namespace {

struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_start(const doctest::TestCaseData& /*data*/) override { current_skipped = false; }
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    ++(stats.failure_flags ? failed : current_skipped ? skipped : passed);
  }
  void test_case_exception(const doctest::TestCaseException& /*e*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*signature*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*data*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};

REGISTER_LISTENER("fovea_counter", 1, Counter);

}  // namespace

}  // namespace fovea::test

int main(int argc, char** argv) {
  // Tests of logic run on the CPU wherever they are; those of a GPU ask for it by name.
  setenv("FOVEA_DEVICE", "cpu", 0);
  doctest::Context context(argc, argv);
  const int rc = context.run();
  if (context.shouldExit()) return rc;
  std::printf("FOVEA_TESTS passed=%d failed=%d skipped=%d\n", fovea::test::passed,
              fovea::test::failed, fovea::test::skipped);
  return rc;
}
