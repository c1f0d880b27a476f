"""The recipe: all that a run is asked to do, as a pydantic model whose serialisation is YAML.

A recipe names methods; their settings are checked against the plug-ins by `gradatim.tasks.core.registry.resolve`.
Credentials never stand in a recipe. Each section hashes on its own, so that a change in one leaves the others' results
in use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import value_hash
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

NAME = r"^[a-z0-9][a-z0-9_.-]{0,63}$"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def section_hash(self) -> str:
        """Hash of this section's settings, 32 hex digits."""
        return value_hash(self.model_dump(mode="json", by_alias=True))


class Step(_Section):
    """A method and its settings: written ``irt`` or ``irt: {model: 2pl}``; ``as`` names its result."""

    method: str
    name: str = Field("", description="name of the result; the method's name unless two would be equal")
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_yaml(cls, found: Any) -> Any:
        if isinstance(found, str):
            return {"method": found, "name": found}
        if isinstance(found, dict) and len(found) == 1 and "method" not in found:
            method, settings = next(iter(found.items()))
            if settings is None:
                settings = {}
            if not isinstance(settings, dict):
                raise ValueError(f"the settings of {method!r} should be a mapping, found {settings!r}")
            settings = dict(settings)
            name = settings.pop("as", method)
            return {"method": method, "name": str(name), "settings": settings}
        return found


def _columns(found: Any) -> Any:
    return [found] if isinstance(found, str) else found


Columns = Annotated[list[str], BeforeValidator(_columns)]


class Examples(_Section):
    """Where the examples come from and which of their columns mean what."""

    source: str | None = Field(
        None, alias="from", description="file, glob or folder: CSV, JSON Lines, Parquet, Arrow IPC"
    )
    generate: Step | None = Field(None, description="a procedural data set instead of files: scan, modular_arithmetic")
    format: Literal["csv", "jsonl", "parquet", "arrow"] | None = Field(None, description="when the ending does not say")
    id: str | None = Field(None, description="column with a unique id")
    identity: Columns = Field(default_factory=list, description="columns whose hash is the id; the input by default")
    input: str | None = Field(None, description="column that the model sees")
    output: str | None = Field(None, description="column that the model should answer")
    domain: str | None = None
    group: str | None = None
    task: str | None = None
    level: str | None = None
    template: str | None = None
    structure: str | None = Field(None, description="column with a tree: node list, nested list, or brackets")
    factors: Columns = Field(default_factory=list, description="columns that become named factors, or one map column")
    created_at: str | None = None
    unit: Literal["characters", "words"] = Field("words", description="unit of length_input and length_output")
    encoding: str = Field("utf-8", description="encoding of text files")
    on_conflict: Literal["first", "last", "reject"] = Field(
        "reject", description="which row stays when one id comes with two contents; reject drops all of them"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Examples:
        if (self.source is None) == (self.generate is None):
            raise ValueError("give either 'from' (files) or 'generate' (a procedural data set)")
        return self


class Responses(_Section):
    """Where the record of who solved what comes from."""

    source: str = Field(alias="from", description="file, glob or folder")
    format: Literal["csv", "jsonl", "parquet", "arrow", "lm-eval"] | None = None
    respondent: str = Field("respondent_id", description="column that names who answered")
    example: str = Field("example_id", description="column that names the example")
    score: str = Field("score", description="column with a score in [0, 1], or true/false")
    attempt: str | None = None
    family: str | None = None
    attempted_at: str | None = None
    period: str | None = None
    metric: str | None = Field(None, description="lm-eval: which metric")
    filter: str | None = Field(None, description="lm-eval: which filter")
    join: str | None = Field(None, description="lm-eval: field of the document that holds the example's id, or 'input'")


class Curriculum(_Section):
    """The order of training."""

    by: str = Field(description="name of a difficulty of this recipe")
    split: str = Field("", description="name of the split whose train rows are ordered; the first one by default")
    pacing: Step = Field(default_factory=lambda: Step(method="competence", name="competence"))
    arms: list[Literal["curriculum", "random", "anti", "shuffled"]] = Field(
        default_factory=lambda: ["curriculum", "random", "anti", "shuffled"]  # type: ignore[arg-type]
    )
    passes: float = Field(1.0, gt=0, description="passes over the training rows, in positions of the random arm")
    stages: int = Field(10, ge=1, le=1000, description="stages into which the order is cut")

    @model_validator(mode="after")
    def _distinct(self) -> Curriculum:
        if len(set(self.arms)) != len(self.arms) or not self.arms:
            raise ValueError("arms should be one or more different names")
        return self


class Optimizer(_Section):
    """AdamW's settings."""

    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup: float = Field(0.0, ge=0, le=1, description="share of the steps with a rising learning rate")
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")


class Checkpoints(_Section):
    """When weights are saved and how many are kept."""

    every: int = Field(500, ge=1, description="optimizer steps between checkpoints; the last step always saves")
    keep: int = Field(2, ge=1, description="newest checkpoints kept")


class Train(_Section):
    """A DeepSpeed training run over one curriculum, an arm and a seed a run."""

    model: Step = Field(description="seq2seq, mlp, or package.module:object")
    launcher: Literal["local", "print"] = "local"
    arms: list[str] = Field(default_factory=list, description="arms to train; all of the curriculum's by default")
    seeds: list[int] = Field(default_factory=lambda: [0])
    ranks: int = Field(1, ge=1, description="worker processes on this host; one a GPU where there are GPUs")
    global_batch: int = Field(64, ge=1)
    micro_batch: int = Field(64, ge=1)
    workers: int = Field(0, ge=0, description="loader processes a rank")
    zero: Literal[0, 1, 2, 3] | None = Field(None, description="ZeRO stage; 0 on CPU and 2 on GPU by default")
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    max_steps: int | None = Field(None, ge=1, description="stop early, in optimizer steps")
    optimizer: Optimizer = Field(default_factory=Optimizer)
    checkpoints: Checkpoints = Field(default_factory=Checkpoints)

    @model_validator(mode="after")
    def _accumulates(self) -> Train:
        if self.global_batch % (self.micro_batch * self.ranks):
            raise ValueError(
                f"global_batch {self.global_batch} is not a multiple of micro_batch x ranks = "
                f"{self.micro_batch} x {self.ranks}"
            )
        return self


class Evaluate(_Section):
    """What is measured on which rows after training."""

    split: str = Field("", description="name of the split; the curriculum's by default")
    difficulty: str = Field("", description="difficulty whose bins are an axis; the curriculum's by default")
    metric: Literal["exact_match"] = "exact_match"
    baseline: str = Field("random", description="arm that the others are compared with, pair by pair")
    cluster: str = Field("", description="column whose values are resampled together; the group by default")
    resamples: int = Field(10_000, ge=100)


class Checks(_Section):
    """Limits beyond which nothing is published."""

    rejects: float = Field(0.01, ge=0, le=1, description="largest share of rejected rows; 1% may be written")
    joined: float = Field(0.98, ge=0, le=1, description="smallest share of responses that must find their example")
    output_not_empty: float = Field(0.0, ge=0, le=1, description="largest share of rows with an empty output")

    @model_validator(mode="before")
    @classmethod
    def _percent(cls, found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        return {
            key: float(value[:-1]) / 100 if isinstance(value, str) and re.fullmatch(r"[\d.]+ ?%", value) else value
            for key, value in found.items()
        }


class Recipe(_Section):
    """All that a run is asked to do."""

    dataset: str = Field(pattern=NAME, description="name under which the tables stand in the store")
    store: str = Field("runs/", description="local folder or object store URL; credentials from the environment")
    examples: Examples
    responses: Responses | None = None
    difficulty: list[Step] = Field(default_factory=list)
    diversity: list[Step] = Field(default_factory=list)
    splits: list[Step] = Field(default_factory=list)
    curriculum: Curriculum | None = None
    train: Train | None = None
    evaluate: Evaluate | None = None
    checks: Checks = Field(default_factory=Checks)
    seed: int = Field(0, ge=0)
    release: bool = Field(False, description="make the tables of a successful run a release")

    @model_validator(mode="after")
    def _names_agree(self) -> Recipe:
        for section in ("difficulty", "diversity", "splits"):
            names = [step.name for step in getattr(self, section)]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{section}: two steps are called {twice[0]!r}; name one with 'as'")
        if self.curriculum:
            _known("curriculum: by", self.curriculum.by, [step.name for step in self.difficulty])
            if self.curriculum.split:
                _known("curriculum: split", self.curriculum.split, [step.name for step in self.splits])
            if not self.splits:
                raise ValueError("a curriculum needs a split: add a section 'splits'")
        if self.train:
            if not self.curriculum:
                raise ValueError("training needs an order: add a section 'curriculum'")
            for arm in self.train.arms:
                _known("train: arms", arm, list(self.curriculum.arms))
        return self


def _known(where: str, name: str, valid: list[str]) -> None:
    if name not in valid:
        raise ValueError(f"{where}: there is no {name!r}{nearest(name, valid)}; one of {', '.join(valid) or 'none'}")


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice, first in line {seen[key]}", problem_mark=key_node.start_mark
            )
        seen[key] = line
    loader.flatten_mapping(node)
    return {
        loader.construct_object(k, deep=True): loader.construct_object(v, deep=True)
        for k, v in node.value
    }


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe.

    Raises
    ------
    UsageError
        That names the file, the path in it, what was found, what is valid and the nearest spelling.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = nearest(path.name, [p.name for p in path.parent.glob("*.y*ml")]) if path.parent.is_dir() else ""
        raise UsageError(f"there is no recipe here{near}", where=str(path), remedy="gradatim init YOUR_FILE") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"the recipe is not UTF-8 (byte {error.start})", where=str(path)) from None
    return parse_recipe(text, where=str(path))


def parse_recipe(text: str, *, where: str = "recipe") -> Recipe:
    """Check a recipe given as YAML text; raises as `load_recipe`."""
    try:
        found = yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise UsageError(str(error.problem), where=f"{where}: line {line}", expected="valid YAML") from None
    if not isinstance(found, dict):
        raise UsageError(f"found {type(found).__name__}", where=where, expected="a mapping with the key 'dataset'")
    try:
        return Recipe.model_validate(found)
    except ValidationError as error:
        raise explain(error, Recipe, where=where) from None


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, short forms where there are any; `parse_recipe` reads it back to an equal recipe."""
    data = recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for section in ("difficulty", "diversity", "splits"):
        if section in data:
            data[section] = [_short(step) for step in data[section]]
    for owner, key in (("examples", "generate"), ("curriculum", "pacing"), ("train", "model")):
        if owner in data and key in data[owner]:
            data[owner][key] = _short(data[owner][key])
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def _short(step: dict[str, Any]) -> Any:
    settings = dict(step.get("settings", {}))
    if step.get("name", step["method"]) != step["method"]:
        settings["as"] = step["name"]
    return {step["method"]: settings} if settings else step["method"]


def explain(error: ValidationError, model: type[BaseModel], *, where: str) -> UsageError:
    """Turn pydantic's first complaint into an error with path, value found, valid names and nearest spelling."""
    # a misspelt key is the likelier cause of a missing one
    first = min(error.errors(), key=lambda complaint: complaint["type"] != "extra_forbidden")
    loc = first["loc"]
    path = ".".join(str(step) for step in loc)
    at = f"{where}: {path}" if path else where
    if first["type"] == "extra_forbidden":
        known = _keys(_owner(model, loc))
        return UsageError(
            f"unknown key {loc[-1]!r}{nearest(str(loc[-1]), known)}", where=at, expected="one of " + ", ".join(known)
        )
    if first["type"] == "missing":
        known = _keys(_owner(model, loc))
        return UsageError(f"the key {loc[-1]!r} is missing", where=at, expected="keys here: " + ", ".join(known))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return UsageError(message, where=at)
    choices = first.get("ctx", {}).get("expected", "")
    near = nearest(str(first["input"]), re.findall(r"'([^']*)'", choices))
    return UsageError(f"found {first['input']!r}{near}", where=at, expected=message)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _owner(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Follow a validation error's path to the model whose key it complains about."""
    owner: type[BaseModel] | None = model
    for step in path[:-1]:
        if owner is None or isinstance(step, int):
            continue
        fields = {field.alias or name: field for name, field in owner.model_fields.items()}
        owner = _model_in(fields[step].annotation) if step in fields else owner
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None
