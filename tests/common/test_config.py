# SPDX-License-Identifier: Apache-2.0
"""A setting means the same as flag, YAML entry, keyword and environment variable."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys

import pytest
from world import ROOT, worker_env

from horovod.common import config

FLAGGED = [s for s in config.SETTINGS if s.flag and s.section != "launcher"]


def parsed(*argv):
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return parser.parse_args(argv)


def example(setting):
    """A value as it is written on the command line, and the variable's text it must give."""
    if setting.type is bool:
        return [setting.flag], "1"
    if setting.type is str:
        value = setting.choices[1] if setting.choices else "some/file"
        return [setting.flag, value], value
    value = {int: 7, float: 0.5}[setting.type]
    return [setting.flag, str(value)], setting.text(setting.type(value * setting.scale))


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
        config.env_of({setting.dest: setting.minimum - 1})


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


@pytest.mark.parametrize("base, given, exported", [
    ({"HOROVOD_AUTOTUNE": "1"}, {"autotune_log_file": "x", "autotune_warmup_samples": 7},
     {"HOROVOD_AUTOTUNE_LOG": "x", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "7"}),
    ({"HOROVOD_AUTOTUNE": "0"}, {"autotune_log_file": "x"}, {}),
    ({"HOROVOD_AUTOTUNE": "1"}, {"autotune": False, "autotune_log_file": "x"}, {"HOROVOD_AUTOTUNE": "0"}),
    ({"HOROVOD_TIMELINE": "t.json"}, {"timeline_mark_cycles": True}, {"HOROVOD_TIMELINE_MARK_CYCLES": "1"}),
    ({"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}, {"timeline_mark_cycles": False},
     {"HOROVOD_TIMELINE_MARK_CYCLES": "0"}),
    ({"HOROVOD_TIMELINE": ""}, {"timeline_mark_cycles": True}, {}),
])  # fmt: skip
def test_dependent_settings_follow_the_environments_switch_unless_it_is_given_too(base, given, exported):
    assert config.env_of(given, base) == exported


def test_names_variables_and_flags_are_unique():
    for what in ("name", "env", "flag", "dest"):
        values = [getattr(s, what) for s in config.SETTINGS if s.flag or what in ("name", "env")]
        assert len(values) == len(set(values)), what


NUMBERS = [s for s in config.SETTINGS if s.type in (int, float)]
BOUNDED = [s for s in NUMBERS if s.minimum is not None]


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda s: s.name)
@pytest.mark.parametrize("text", ["60s", "many", "nan", "inf", "1e400", "0x10", "1 2"])
def test_text_for_a_number_is_an_error_that_names_the_variable(setting, text):
    with pytest.raises(ValueError, match=f"^{setting.env}={text} is not a .*number.*, e.g. "):
        config.get(setting.name, {setting.env: text})
    with pytest.raises(ValueError, match=setting.env):
        config.check({setting.env: text})
    assert config.usable(setting.name, {setting.env: text}) == setting.default


@pytest.mark.parametrize("setting", BOUNDED, ids=lambda s: s.name)
def test_ranges_hold_for_the_variable_as_for_the_flag(setting):
    for wrong in [setting.minimum - 1] + ([setting.maximum + 1] if setting.maximum is not None else []):
        with pytest.raises(ValueError, match=f"^{setting.env}={wrong:.0f} must be "):
            config.get(setting.name, {setting.env: f"{wrong:.0f}"})
    assert config.get(setting.name, {setting.env: f"{setting.minimum:.0f}"}) == setting.minimum


def test_a_staging_buffer_has_room_for_a_light_batch():
    with pytest.raises(ValueError, match=r"HOROVOD_SHM_SLOT_BYTES=16383 must be in \[16384, "):
        config.check({"HOROVOD_SHM_SLOT_BYTES": "16383"})


@pytest.mark.parametrize("text, value", [("", 30), ("  ", 30), ("45", 45), (" 45 ", 45), ("45.0", 45)])
def test_numbers_as_people_write_them(text, value):
    assert config.get("gloo_timeout_seconds", {"HOROVOD_GLOO_TIMEOUT_SECONDS": text}) == value


@pytest.mark.parametrize("where", ["keyword", "file"])
def test_text_for_a_number_is_named_where_it_was_written(where):
    if where == "keyword":
        with pytest.raises(ValueError, match="^gloo_timeout_seconds=60s is not a whole number"):
            config.env_of({"gloo_timeout_seconds": "60s"})
    else:
        with pytest.raises(ValueError, match="^params.fusion_threshold_mb=a lot is not a .*, e.g. 128$"):
            config.flags_of_yaml({"params": {"fusion_threshold_mb": "a lot"}})


SWITCHES = [
    ("1", True), ("0", False), ("2", True), ("-1", False), ("0.0", False),
    ("yes", True), ("No", False), ("TRUE", True), ("false", False), ("on", True), ("off", False),
]  # fmt: skip


@pytest.mark.parametrize("text, value", SWITCHES)
def test_a_number_above_0_switches_on_and_so_do_words(text, value):
    assert config.get("stall_check_disable", {"HOROVOD_STALL_CHECK_DISABLE": text}) is value
    assert config.flags_of_yaml({"timeline": {"mark_cycles": text}}) == {"timeline_mark_cycles": value}


def test_a_switch_that_is_neither_on_nor_off_is_named():
    with pytest.raises(ValueError, match="^HOROVOD_STALL_CHECK_DISABLE=maybe must be 1 or 0"):
        config.get("stall_check_disable", {"HOROVOD_STALL_CHECK_DISABLE": "maybe"})


def test_choices_hold_for_the_variable_in_any_case():
    assert config.get("link_security", {"HOROVOD_LINK_SECURITY": "Encrypt"}) == "Encrypt"
    with pytest.raises(
        ValueError, match="HOROVOD_LINK_SECURITY=tls must be one of control, integrity, encrypt"
    ):
        config.check({"HOROVOD_LINK_SECURITY": "tls"})
    # As documented: a log level nobody knows is the default.
    assert config.get("log_level", {"HOROVOD_LOG_LEVEL": "chatty"}) == "warning"


def test_what_does_nothing_is_listed_once_and_nowhere_described_as_working():
    with open(f"{ROOT}/docs/settings.md") as file:
        working, _, listed = file.read().partition("## Accepted for compatibility")
    for setting in config.SETTINGS:
        inert = setting.name in config.DOES_NOTHING
        assert (f"`{setting.env}`" in listed) == inert and (f"| `{setting.env}` " in working) != inert
        assert config.description(setting).startswith("Accepted for compatibility, does nothing: ") == inert
    assert set(config.DOES_NOTHING) <= set(config.BY_NAME)


def test_nothing_that_does_nothing_is_read():
    """What nobody asks for, here or in the engine, is on the list; what somebody asks for is not."""
    read = set()
    for folder, _, files in os.walk(f"{ROOT}/horovod"):
        for name in files:
            if name.endswith(".py") and name != "config.py":
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    read |= set(re.findall(r"config\.(?:get|usable)\(\s*\"(\w+)\"", file.read()))
    engine = {s.name for s in config.SETTINGS if s.engine}
    flags = {"elastic_timeout", "start_timeout", "log_hide_time"}
    asked = {s.name for s in config.SETTINGS} - set(config.DOES_NOTHING) - engine - flags
    assert not asked - read
    assert not read & set(config.DOES_NOTHING)


def test_engine_settings_are_texts_of_the_right_values():
    given = config.engine_settings({"HOROVOD_FUSION_THRESHOLD": "1024", "HOROVOD_STALL_CHECK_DISABLE": "yes"})
    assert given["fusion_threshold"] == "1024"
    assert given["stall_check_disable"] == "1"
    assert given["cache_capacity"] == "1024"
    assert all(isinstance(v, str) for v in given.values())


def test_the_engine_knows_its_settings():
    from horovod.common import _native

    for name, value in config.engine_settings({}).items():
        assert _native.lib().hvd_configure(name.encode(), value.encode()) == 0, name
    assert _native.lib().hvd_configure(b"no such setting", b"1") < 0


def job(settings):
    """What a worker sees of some settings that are given as keywords of horovod.run."""
    import horovod

    def seen():
        return {name: os.environ.get(name) for name in ("HOROVOD_LINK_SECURITY", "HOROVOD_CYCLE_TIME")}

    return horovod.run(seen, np=1, env=worker_env(), **settings)[0]


def test_a_worker_sees_the_same_whichever_way_a_setting_is_given(tmp_path):
    expected = {"HOROVOD_LINK_SECURITY": "integrity", "HOROVOD_CYCLE_TIME": "2.5"}
    assert job({"link_security": "integrity", "cycle_time_ms": 2.5}) == expected
    config_file = tmp_path / "job.yaml"
    config_file.write_text("params: {cycle_time_ms: 2.5}\nlibrary_options: {link_security: integrity}\n")
    show = f"import json, os; print(json.dumps({{n: os.environ.get(n) for n in {list(expected)}}}))"
    ways = [
        ((), expected),
        (("--config-file", str(config_file)), {}),
        (("--link-security", "integrity", "--cycle-time-ms", "2.5"), {}),
    ]
    for words, env in ways:
        launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "1", *words]
        done = subprocess.run(
            [*launcher, sys.executable, "-c", show], env=worker_env(env), capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert json.loads(done.stdout.partition(":")[2]) == expected, done.stderr


def test_off_wins_over_an_environment_that_says_on(tmp_path):
    config_file = tmp_path / "job.yaml"
    config_file.write_text("autotune: {enabled: false}\n")
    for words in (["--no-autotune"], ["--config-file", str(config_file)]):
        launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "1", *words]
        done = subprocess.run(
            [*launcher, "printenv", "HOROVOD_AUTOTUNE"],
            env=worker_env({"HOROVOD_AUTOTUNE": "1"}), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stdout == "[0]<stdout>:0\n", done.stderr


def test_keywords_add_to_a_switch_of_the_environment():
    import horovod

    names = ("HOROVOD_AUTOTUNE_LOG", "HOROVOD_TIMELINE_MARK_CYCLES")
    env = worker_env({"HOROVOD_AUTOTUNE": "1", "HOROVOD_TIMELINE": "t.json"})
    seen = horovod.run(
        lambda: [os.environ.get(name) for name in names], np=1, env=env, autotune_log_file="x.csv",
        timeline_mark_cycles=True,
    )  # fmt: skip
    assert seen == [["x.csv", "1"]]


@pytest.mark.parametrize("words, env, shown", [
    ((), {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60s"}, "HOROVOD_GLOO_TIMEOUT_SECONDS=60s is not a whole number"),
    ((), {"HOROVOD_START_TIMEOUT": "soon"}, "HOROVOD_START_TIMEOUT=soon is not a whole number"),
    (("--config-file", "{file}"), {}, "params.cycle_time_ms=quick is not a number"),
])  # fmt: skip
def test_the_launcher_refuses_a_wrong_setting_without_a_traceback(tmp_path, words, env, shown):
    file = tmp_path / "job.yaml"
    file.write_text("params: {cycle_time_ms: quick}\n")
    words = [word.format(file=file) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", "-np", "1", *words, "true"],
        env=worker_env(env), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert shown in done.stderr and "Traceback" not in done.stderr


def test_the_reference_is_current():
    script = f"{ROOT}/scripts/generate_settings.py"
    assert subprocess.run([sys.executable, script, "--check"], cwd=ROOT).returncode == 0
