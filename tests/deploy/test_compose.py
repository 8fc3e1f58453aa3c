"""The deployment files: what is in them can be started, is watched, and is open to nobody else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
TOLD: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
SERVICES: dict[str, dict[str, Any]] = TOLD["services"]


def test_all_servers_are_there() -> None:
    assert set(SERVICES) == {
        "redis",
        "rabbitmq",
        "kafka1",
        "kafka2",
        "kafka3",
        "kafka-console",
        "zookeeper1",
        "zookeeper2",
        "zookeeper3",
        "crawl",
        "worker",
    }
    assert "management" in SERVICES["rabbitmq"]["image"]
    assert "--appendonly yes" in " ".join(SERVICES["redis"]["command"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[\w/-]+(:[\w.-]+)?", service["image"]), "no registry of its own"
    assert ":" in service["image"] or service["image"] == "uttu", "a version"
    check = service["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= check.keys()
    for port in service.get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), f"{port} is open to others"
    for mount in service.get("volumes", ()):
        source, target, *_ = mount.split(":")
        assert target.startswith("/")
        assert source in TOLD["volumes"] or (COMPOSE.parent / source).is_dir()
    for other in service.get("depends_on", ()):
        assert other in SERVICES


def test_a_worker_does_not_try_for_ever() -> None:
    assert SERVICES["worker"]["restart"] == "on-failure:20"


def test_no_port_is_taken_twice() -> None:
    ports = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == len(set(ports)) == 10


def test_every_volume_is_used() -> None:
    used = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())}
    assert TOLD["volumes"].keys() <= used


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_node_of_a_cluster_knows_the_others_and_itself(number: int) -> None:
    kafka, zookeeper = SERVICES[f"kafka{number}"]["environment"], SERVICES[f"zookeeper{number}"]["environment"]
    assert kafka["KAFKA_NODE_ID"] == zookeeper["ZOO_MY_ID"] == number
    assert [voter.split("@")[0] for voter in kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")] == ["1", "2", "3"]
    assert f"{number}@kafka{number}:29093" in kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    assert f"INTERNAL://kafka{number}:" in kafka["KAFKA_ADVERTISED_LISTENERS"]
    (port,) = SERVICES[f"kafka{number}"]["ports"]
    assert kafka["KAFKA_ADVERTISED_LISTENERS"].endswith(f"EXTERNAL://127.0.0.1:{port.split(':')[1]}")
    assert kafka["KAFKA_LISTENERS"].endswith(f"EXTERNAL://:{port.split(':')[2]}")
    assert f"server.{number}=zookeeper{number}:2888:3888;2181" in zookeeper["ZOO_SERVERS"].split(" ")


def test_the_image_holds_what_the_package_needs() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "[all]" in text
    assert "all" in project["optional-dependencies"]
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line[0] == "!"}
    copied = {word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]}
    assert copied == let_in
    assert {project["readme"], *project["license-files"], "pyproject.toml", "src"} <= copied
    assert all((ROOT / name).exists() for name in copied)


def test_compose_itself_accepts_it() -> None:
    if shutil.which("docker") is None or _compose("version").returncode:
        pytest.skip("docker compose is not installed")
    done = _compose("-f", str(COMPOSE), "--profile", "crawl", "config", "--quiet")
    assert done.returncode == 0, done.stderr


def _compose(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "compose", *words], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
    )
