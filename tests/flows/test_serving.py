"""`gradatim serve`: a real server with a scheduled deployment, which ends with the command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from gradatim.flows.serving import serve_recipe
from gradatim.schemas.errors import UsageError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str) -> list[dict[str, object]]:
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        found: list[dict[str, object]] = json.load(answer)
    return found


def test_serve_starts_a_server_with_a_scheduled_deployment_and_takes_it_along(small: Callable[..., Path]) -> None:
    recipe, port = small(), free_port()
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api", "PYTHONUNBUFFERED": "1"}
    command = [
        sys.executable,
        "-m",
        "gradatim.flows.cli",
        "serve",
        str(recipe),
        "--port",
        str(port),
        "--cron",
        "0 3 * * *",
    ]
    served = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deployments: list[dict[str, object]] = []
        until = time.monotonic() + 150
        while not deployments and time.monotonic() < until and served.poll() is None:
            time.sleep(1)
            try:
                deployments = ask(f"{url}/api/deployments/filter")
            except OSError:
                continue
        assert [one["name"] for one in deployments] == ["small"]
        assert deployments[0]["schedules"][0]["schedule"]["cron"] == "0 3 * * *"  # type: ignore[index]
        assert deployments[0]["entrypoint"] == "gradatim.flows.pipeline.pipeline"
        assert deployments[0]["parameters"]["recipe"] == str(recipe)  # type: ignore[index]
        with urllib.request.urlopen(url, timeout=5) as page:
            assert b"<html" in page.read(500).lower()
        assert (recipe.parent / "store" / ".prefect" / "prefect.db").is_file()
    finally:
        served.send_signal(signal.SIGTERM)
        out, _ = served.communicate(timeout=60)
    assert f"Prefect UI   {url}" in out
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_schedule_that_is_none_is_told_before_a_server_starts(small: Callable[..., Path]) -> None:
    command = [sys.executable, "-m", "gradatim.flows.cli", "serve", str(small()), "--port", str(free_port())]
    done = subprocess.run([*command, "--cron", "every night"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "'every night' is no schedule" in done.stderr


def test_a_port_in_use_is_told(small: Callable[..., Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            serve_recipe(str(small()), cron="0 3 * * *", store=None, data=None, port=port, verbose=False)
