# SPDX-License-Identifier: Apache-2.0
"""Where hosts come from."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import threading

import pytest
from launching import descendants, start_horovodrun, still_there
from waiting import until

from horovod.runner.elastic import discovery
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.kubernetes import HeadlessService, ServiceEndpoints, ready_addresses
from horovod.runner.elastic.slurm import SlurmAllocation, up_nodes


@pytest.mark.parametrize(
    "printed, slots, found",
    [
        ("a:2\nb:4\n", None, {"a": 2, "b": 4}),
        ("a\n\nb:4\n", 3, {"a": 3, "b": 4}),
        ("a:2\na:2\n", None, {"a": 2}),
        ("", 1, {}),
        ("[fe80::1]:2\n[fe80::2]\n", 1, {"fe80::1": 2, "fe80::2": 1}),
    ],
)
def test_script(tmp_path, printed, slots, found):
    (tmp_path / "hosts").write_text(printed)
    assert HostDiscoveryScript(f"cat {tmp_path}/hosts", slots).find_available_hosts_and_slots() == found


@pytest.mark.parametrize(
    "script, kind, text",
    [
        ("echo a; exit 7", RuntimeError, "Failed to execute discovery script: echo a; exit 7. Exit code: 7"),
        ("no-such-program-here 2>/dev/null", RuntimeError, "Exit code: 127"),
        ("echo a", ValueError, "'a' without slots.*--slots-per-host"),
        ("echo a:b:c", ValueError, "Invalid host input"),
    ],
)
def test_scripts_that_fail(script, kind, text):
    with pytest.raises(kind, match=text):
        HostDiscoveryScript(script).find_available_hosts_and_slots()


def test_a_script_that_hangs_is_ended_with_all_that_it_has_started(tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "_SCRIPT_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match="It took longer than 0.5 s"):
        HostDiscoveryScript(f"sleep 37 & echo $! > {tmp_path}/sleeper; wait").find_available_hosts_and_slots()
    assert still_there([int((tmp_path / "sleeper").read_text())], 10) == []


def test_a_script_that_was_closed_can_be_asked_again(tmp_path):
    script = HostDiscoveryScript(f"touch {tmp_path}/asked; [ -e {tmp_path}/quick ] || sleep 37; echo a:1")
    failed = []

    def ask():
        try:
            script.find_available_hosts_and_slots()
        except RuntimeError as error:
            failed.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    until((tmp_path / "asked").exists, "it runs")
    script.close()
    asking.join(10)
    assert not asking.is_alive() and "Exit code: -9" in failed[0]
    (tmp_path / "quick").touch()
    assert script.find_available_hosts_and_slots() == {"a": 1}
    script.close()


def test_a_script_that_runs_ends_with_the_job(tmp_path):
    script = f"echo localhost:1; touch {tmp_path}/asked; sleep 37; true"
    with start_horovodrun("-np", "1", "--min-np", "1", "--host-discovery-script", script, "true") as job:
        until((tmp_path / "asked").exists, "it runs")
        until(lambda: len(descendants(job.pid)) >= 3, "it sleeps")
        everybody = descendants(job.pid)
        os.kill(job.pid, signal.SIGINT)
        assert job.wait(30) == 130
        assert still_there(everybody, 10) == []


def test_fixed_hosts_can_be_set():
    hosts = FixedHosts({"a": 1})
    assert hosts.find_available_hosts_and_slots() == {"a": 1}
    hosts.set({"b": 2})
    assert hosts.find_available_hosts_and_slots() == {"b": 2}
    with pytest.raises(NotImplementedError):
        HostDiscovery().find_available_hosts_and_slots()


SCONTROL = """\
NodeName=node1 Arch=x86_64 CPUAlloc=2 State=ALLOCATED ThreadsPerCore=1
NodeName=node2 Arch=x86_64 State=DOWN*+DRAIN Reason=Not responding
NodeName=node3 State=MIXED+DRAIN Partitions=all
NodeName=node4 State=ALLOCATED+NOT_RESPONDING Partitions=all
"""


def test_slurm_nodes_that_are_up(tmp_path, monkeypatch):
    given = {f"node{n}": 2 for n in range(1, 5)}
    assert up_nodes(given, SCONTROL) == {"node1": 2, "node3": 2}
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\n[ "$3" = "node[1-4]" ] && cat <<EOF\n{SCONTROL}EOF\n')
    program.chmod(0o755)
    env = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_TASKS_PER_NODE": "2(x4)"}
    env["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", env["PATH"])
    assert SlurmAllocation(env).find_available_hosts_and_slots() == {"node1": 2, "node3": 2}
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(RuntimeError, match="scontrol show node"):
        SlurmAllocation(env).find_available_hosts_and_slots()
    with pytest.raises(ValueError, match="no Slurm allocation"):
        SlurmAllocation({})


ENDPOINTS = {
    "subsets": [
        {"addresses": [{"ip": "10.1.0.4"}, {"ip": "10.1.0.5"}], "notReadyAddresses": [{"ip": "10.1.0.6"}]},
        {"notReadyAddresses": [{"ip": "10.1.0.7"}]},
    ]
}


def test_kubernetes_endpoints(tmp_path):
    assert ready_addresses(ENDPOINTS, 2) == {"10.1.0.4": 2, "10.1.0.5": 2}
    assert ready_addresses({"subsets": None}, 2) == {}
    asked = []

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(ENDPOINTS).encode())

        def log_message(self, *args):
            pass

    for name, text in (("namespace", "training"), ("token", "secret")):
        (tmp_path / name).write_text(text + "\n")
    with http.server.HTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        pods = ServiceEndpoints("workers", 4, server=url, account=str(tmp_path))
        assert pods.find_available_hosts_and_slots() == {"10.1.0.4": 4, "10.1.0.5": 4}
        server.shutdown()
    assert asked == [("/api/v1/namespaces/training/endpoints/workers", "Bearer secret")]
    with pytest.raises(RuntimeError, match="endpoints/workers"):
        pods.find_available_hosts_and_slots()


def test_kubernetes_service(monkeypatch):
    assert HeadlessService("localhost", 2).find_available_hosts_and_slots().get("127.0.0.1") == 2

    def fails(number):
        def resolve(*args, **kwargs):
            raise socket.gaierror(number, "no")

        return resolve

    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_NONAME))
    assert HeadlessService("workers", 2).find_available_hosts_and_slots() == {}, "no pod is ready"
    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_AGAIN))
    with pytest.raises(RuntimeError, match="cannot resolve the service workers"):
        HeadlessService("workers", 2).find_available_hosts_and_slots()
