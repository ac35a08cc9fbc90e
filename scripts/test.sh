#!/usr/bin/env bash
# Installs what is missing, builds fovea with its tests, and runs them all. The last line is
# "N passed, N failed, N skipped"; the exit code is 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
trap 'echo "0 passed, 1 failed, 0 skipped"' ERR # it did not come to the tests

install_missing "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
cmake --preset cpu -DFOVEA_TESTS=ON
cmake --build build/cpu
mapfile -t programs <build/cpu/tests/programs.txt
exec scripts/run_tests.sh "${programs[@]}"
