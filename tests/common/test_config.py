# SPDX-License-Identifier: Apache-2.0
"""A setting means the same as flag, YAML entry, keyword and environment variable."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from world import ROOT

from horovod.common import config

FLAGGED = [s for s in config.SETTINGS if s.flag and s.section != "launcher"]


def parsed(*argv):
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return parser.parse_args(argv)


def example(setting):
    """A value as it is written on the command line, and the variable's text it must give."""
    if setting.type is bool:
        return [setting.flag], "0" if setting.name == "nothing" else "1"
    value = {int: 7, float: 0.5, str: "INFO" if setting.choices else "some/file"}[setting.type]
    return [setting.flag, str(value)], setting.text(
        setting.type(value * setting.scale) if value != "INFO" else value
    )


def needed(setting):
    """Flags without which this one is not exported."""
    other = config.BY_NAME.get(setting.needs)
    return example(other)[0] if other else []


@pytest.mark.parametrize("setting", FLAGGED, ids=lambda s: s.name)
def test_flag_keyword_yaml_and_variable_agree(setting):
    argv, text = example(setting)
    from_flags = config.env_of(vars(parsed(*needed(setting), *argv)))
    assert from_flags[setting.env] == text

    value = getattr(parsed(*argv), setting.dest)
    keywords = {setting.dest: value}
    other = config.BY_NAME.get(setting.needs)
    if other:
        keywords[other.dest] = getattr(parsed(*needed(setting)), other.dest)
    assert config.env_of(keywords) == from_flags

    if setting.yaml:
        written = value
        if setting.type is bool:
            meaning = setting.from_flag(value)
            written = meaning != ("yaml" in setting.inverted.split())
        document = {setting.section: {setting.yaml: written}}
        if other:
            document.setdefault(other.section, {})[other.yaml] = True if other.type is bool else "some/file"
        assert config.env_of(config.flags_of_yaml(document)) == from_flags

    assert config.get(setting.name, from_flags) == setting.parse(text)


@pytest.mark.parametrize("setting", [s for s in FLAGGED if s.type is bool], ids=lambda s: s.name)
def test_boolean_flags_have_an_opposite(setting):
    off = config._opposite(setting.flag)
    value = getattr(parsed(off), setting.dest)
    assert setting.from_flag(value) is False
    with pytest.raises(SystemExit):
        parsed(setting.flag, off)


@pytest.mark.parametrize("setting", [s for s in FLAGGED if s.minimum is not None], ids=lambda s: s.name)
def test_values_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=setting.dest):
        config.env_of({setting.dest: -1})


def test_gaussian_noise_range_is_named():
    with pytest.raises(ValueError, match=r"autotune_gaussian_process_noise=2 must be in \[0, 1\]"):
        config.env_of({"autotune_gaussian_process_noise": 2})


def test_nothing_given_exports_nothing():
    assert config.env_of(vars(parsed())) == {}
    assert config.flags_of_yaml({}) == {}
    assert config.flags_of_yaml({"params": None, "unknown": {"x": 1}}) == {}


def test_dependent_settings_are_exported_only_with_their_switch():
    assert config.env_of({"autotune_log_file": "x"}) == {}
    assert config.env_of({"timeline_mark_cycles": True}) == {}


def test_names_variables_and_flags_are_unique():
    for what in ("name", "env", "flag", "dest"):
        values = [getattr(s, what) for s in config.SETTINGS if s.flag or what in ("name", "env")]
        assert len(values) == len(set(values)), what


@pytest.mark.parametrize(
    "text, value", [("1", True), ("0", False), ("2", True), ("-1", False), ("yes", False)]
)
def test_booleans_parse_as_in_c(text, value):
    assert config.get("autotune", {"HOROVOD_AUTOTUNE": text}) is value


def test_engine_settings_are_texts_of_the_right_values():
    given = config.engine_settings({"HOROVOD_FUSION_THRESHOLD": "1024", "HOROVOD_STALL_CHECK_DISABLE": "1"})
    assert given["fusion_threshold"] == "1024"
    assert given["stall_check_disable"] == "1"
    assert given["cache_capacity"] == "1024"
    assert all(isinstance(v, str) for v in given.values())


def test_the_engine_knows_its_settings():
    from horovod.common import _native

    for name, value in config.engine_settings({}).items():
        assert _native.lib().hvd_configure(name.encode(), value.encode()) == 0, name
    assert _native.lib().hvd_configure(b"no such setting", b"1") < 0


def test_the_reference_is_current():
    script = f"{ROOT}/scripts/generate_settings.py"
    assert subprocess.run([sys.executable, script, "--check"], cwd=ROOT).returncode == 0
