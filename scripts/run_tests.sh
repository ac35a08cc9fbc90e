#!/usr/bin/env bash
# Runs test programs and adds up their counts: run_tests.sh PROGRAM...
# A program ends with "FOVEA_TESTS passed=N failed=N skipped=N" (tests/main.cpp). One that ends without,
# or with a failure it did not count, crashed (124: ran past 20 minutes): it is named and counts as one failure.
# The last line is "N passed, N failed, N skipped"; the exit code is 0 only if nothing failed.
set -uo pipefail

passed=0
failed=0
skipped=0
crashed=()
output=$(mktemp)
trap 'rm -f "$output"' EXIT

for program in "$@"; do
  echo "== $(basename "$program")"
  timeout 1200 "$program" 2>&1 | tee "$output"
  code=${PIPESTATUS[0]}
  counts=$(grep -a '^FOVEA_TESTS passed=[0-9]* failed=[0-9]* skipped=[0-9]*$' "$output" | tail -n 1)
  program_failed=0
  if [ -n "$counts" ]; then
    read -r program_passed program_failed program_skipped < <(tr -c '0-9\n' ' ' <<<"${counts#FOVEA_TESTS}")
    passed=$((passed + program_passed))
    failed=$((failed + program_failed))
    skipped=$((skipped + program_skipped))
  fi
  if [ -z "$counts" ] || { [ "$code" -ne 0 ] && [ "$program_failed" -eq 0 ]; }; then
    crashed+=("$(basename "$program") (exit code $code)")
    failed=$((failed + 1))
  fi
done

for name in "${crashed[@]}"; do
  echo "CRASHED: $name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
