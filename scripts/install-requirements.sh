#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs a requirements file; a framework that has no build for this Python or platform is reported and
# left out, so that the rest of the tests still run.
#   scripts/install-requirements.sh .venv/bin/python requirements-dev.txt
python=$1
file=$2
"$python" -m pip install -q --upgrade pip >/dev/null 2>&1
if "$python" -m pip install -q -r "$file"; then
  exit 0
fi
echo "install-requirements: installing one by one, something in $file has no build for this platform" >&2
status=0
grep -v '^#' "$file" | while read -r requirement; do
  [ -n "$requirement" ] || continue
  "$python" -m pip install -q "$requirement" || echo "install-requirements: left out: $requirement" >&2
done
"$python" -c 'import numpy, pytest, hypothesis, cloudpickle, yaml' || status=1
exit $status
