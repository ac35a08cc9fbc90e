#!/usr/bin/env bash
# clang-tidy on host files, with the settings of .clang-tidy: tidy.sh BUILD_DIR FILE...
# Prints findings only.
set -uo pipefail
build=$1
shift
output=$(clang-tidy -p "$build" --quiet "$@" 2>&1) && exit 0
grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -(header|system)' <<<"$output"
exit 1
