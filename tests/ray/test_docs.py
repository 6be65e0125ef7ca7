# SPDX-License-Identifier: Apache-2.0
"""The code of docs/ray.md runs; the cluster's configuration is one that Ray understands."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import yaml
from world import ROOT


def test_the_page_runs(ray_cluster):
    with open(os.path.join(ROOT, "docs", "ray.md"), encoding="utf-8") as file:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE))
    env = dict(os.environ, RAY_ADDRESS=ray_cluster.address)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def test_the_configuration_for_ray_up():
    from ray.autoscaler._private.util import prepare_config, validate_config

    with open(os.path.join(ROOT, "docker", "ray-cluster.yaml"), encoding="utf-8") as file:
        config = yaml.safe_load(file)
    validate_config(prepare_config(config))
    assert config["head_node_type"] in config["available_node_types"]


def test_the_reference_is_current():
    command = [sys.executable, os.path.join(ROOT, "scripts", "generate_api.py"), "--check", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "left as it is" not in done.stdout, done.stdout + done.stderr
