#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format on all C++ files, clang-tidy on the engine. Needs build/compile_commands.json (make build).
#   scripts/lint-cpp.sh [--fix]
cd "$(dirname "$0")/.." || exit 1
bin=${VENV:-.venv}/bin
files=$(git ls-files --cached --others --exclude-standard 'csrc/*.cc' 'csrc/*.h')
if [ "$1" = --fix ]; then
  echo "$files" | xargs "$bin/clang-format" -i
  exit
else
  echo "$files" | xargs "$bin/clang-format" --dry-run -Werror || {
    echo "lint-cpp: run scripts/lint-cpp.sh --fix" >&2
    exit 1
  }
fi
git ls-files 'csrc/*.cc' ':!csrc/tests' ':!csrc/glue' |
  xargs -n 3 -P "$(nproc)" "$bin/clang-tidy" -p build --quiet
