#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make docs: renews the generated pages, builds site/ with warnings as errors in an environment of its own, and
# checks every link inside it. The reference of the front ends is renewed where their frameworks are: in .venv.
set -e
cd "$(dirname "$0")/.."
unset PYTHONPATH
venv=${DOCS_VENV:-.venv-docs}
if [ ! -f "$venv/.ready" ] || [ requirements-docs.txt -nt "$venv/.ready" ]; then
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -r requirements-docs.txt
  touch "$venv/.ready"
fi
for script in generate_settings draw_concepts; do "$venv/bin/python" "scripts/$script.py"; done
frameworks=${VENV:-.venv}/bin/python
if [ -x "$frameworks" ] && ls horovod/_lib/*.so >/dev/null 2>&1; then
  TF_CPP_MIN_LOG_LEVEL=3 "$frameworks" scripts/generate_api.py
fi
# The theme's makers announce a successor of MkDocs on every start; it is no concern of a build.
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict --quiet --site-dir "${SITE:-site}"
"$venv/bin/python" scripts/check_links.py "${SITE:-site}"
