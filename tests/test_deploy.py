"""The deployments: entrypoints that import, parameters that the flows take, and a rule for every collision."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.schedules import CronSchedule
from prefect.flows import load_flow_from_entrypoint

PATH = Path(__file__).parents[1] / "deploy" / "prefect.yaml"
FILE: dict[str, Any] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = FILE["deployments"]
each = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["entrypoint"].split(":")[1])


def test_the_four_flows_are_deployed_once_each_under_names_of_their_own() -> None:
    assert [d["entrypoint"] for d in DEPLOYMENTS] == [
        f"gradatim.flows.{flow}:{flow}" for flow in ("curate", "train", "evaluate", "pipeline")
    ]
    assert all(d["name"] and d["description"] for d in DEPLOYMENTS)


@each
def test_the_entrypoint_loads_and_takes_the_parameters(deployment: dict[str, Any]) -> None:
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert flow.name == deployment["entrypoint"].split(":")[1]
    given = deployment["parameters"]
    accepted = inspect.signature(flow.fn).parameters
    assert given.keys() <= accepted.keys()
    needed = {name for name, parameter in accepted.items() if parameter.default is inspect.Parameter.empty}
    assert needed <= given.keys()
    flow.validate_parameters(given)


@each
def test_parameters_are_shallow_so_that_the_form_is_usable(deployment: dict[str, Any]) -> None:
    schema = load_flow_from_entrypoint(deployment["entrypoint"]).parameters
    assert schema.definitions in (None, {})
    for name, field in schema.properties.items():
        kinds = {one.get("type") for one in field.get("anyOf", [field])} - {"null"}
        assert kinds <= {"string", "boolean", "integer", "number"}, name


@each
def test_a_deployment_runs_in_the_process_pool_with_a_schedule_tags_and_a_rule_for_collisions(
    deployment: dict[str, Any],
) -> None:
    assert deployment["work_pool"]["name"] == "gradatim"
    assert deployment["work_pool"]["job_variables"]["env"]["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert "gradatim" in deployment["tags"]
    assert ConcurrencyLimitConfig.model_validate(deployment["concurrency_limit"]).limit == 1
    (schedule,) = deployment["schedules"]
    assert schedule.keys() == {"cron", "timezone", "active"}
    CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])


def test_what_runs_as_one_flow_is_not_scheduled_beside_its_parts() -> None:
    active = {d["entrypoint"].split(":")[1]: d["schedules"][0]["active"] for d in DEPLOYMENTS}
    assert active == {"curate": True, "train": True, "evaluate": True, "pipeline": False}


def test_the_file_holds_no_credential_and_pulls_nothing() -> None:
    text = PATH.read_text(encoding="utf-8").lower()
    assert not [word for word in ("password", "secret", "api_key", "token") if word in text]
    assert (FILE["build"], FILE["push"], FILE["pull"]) == (None, None, None)
