"""The recipe: all that a run is asked to do, as a pydantic model whose serialisation is YAML.

A recipe names methods; their settings are checked against the plug-ins by `gradatim.tasks.core.registry.resolve`.
Credentials never stand in a recipe. Each section hashes on its own, so that a change in one leaves the others' results
in use.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gradatim.schemas import strict_yaml
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.explain import explain as explain
from gradatim.schemas.explain import shown
from gradatim.schemas.hashing import value_hash


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, ser_json_inf_nan="strings")

    def section_hash(self) -> str:
        """Hash of this section's settings, 32 hex digits."""
        return value_hash(json.loads(self.model_dump_json(by_alias=True)))


class Step(_Section):
    """A method and its settings: written ``irt`` or ``irt: {model: 2pl}``; ``as`` names its result."""

    method: str = Field(min_length=1, description="name of a plug-in")
    name: str = Field("", description="name of the result, written `as`; the method's name by default")
    settings: dict[str, Any] = Field(default_factory=dict, description="the plug-in's settings")

    @model_validator(mode="before")
    @classmethod
    def _from_yaml(cls, found: Any) -> Any:
        if isinstance(found, str):
            return {"method": found, "name": found}
        if not isinstance(found, dict):
            raise ValueError(f"a step is a method's name, or 'method: {{setting: value}}'; found {shown(found)}")
        if "method" in found and found.keys() <= {"method", "name", "settings"}:
            return {**found, "name": found.get("name") or found["method"]}
        if len(found) != 1:
            raise ValueError(
                f"a step names one method; found {shown(found)}: settings belong indented below their method"
            )
        method, settings = next(iter(found.items()))
        if settings is None:
            settings = {}
        if not isinstance(settings, dict):
            raise ValueError(f"the settings of {method!r} should be a mapping; found {shown(settings)}")
        settings = dict(settings)
        name = settings.pop("as", method)
        if name is None or isinstance(name, dict | list) or not str(name).strip():
            raise ValueError(f"'as' should name the result of {method!r}; found {shown(name)}")
        return {"method": method, "name": str(name), "settings": settings}


def _listed(found: Any) -> Any:
    return [found] if isinstance(found, str) else found


def _steps(found: Any) -> Any:
    if found is None:  # the section's name with nothing below it
        return []
    if not isinstance(found, list | tuple):
        raise ValueError(f"a list of steps is expected, each on its own line after '- '; found {shown(found)}")
    return found


def _named(found: Any) -> Any:
    if isinstance(found, dict) and (isinstance(found.get("from"), str) or isinstance(found.get("by"), str)):
        key = "from" if isinstance(found.get("from"), str) else "by"
        raise ValueError(f"each source of vectors has a name, e.g.  words: {{{key}: {found[key]}}}")
    return found


def _share(found: Any) -> Any:
    if isinstance(found, str) and (percent := re.fullmatch(r"(\d+\.?\d*|\.\d+) ?%", found.strip())):
        return float(percent[1]) / 100
    return found


def _or_off(found: Any) -> Any:
    if found is True:
        raise ValueError("a similarity is expected, e.g. 0.8, or off; found true")
    return None if found is False or found == "off" else found


def _plain_name(found: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,63}", found):
        raise ValueError(
            f"found {found!r}; a name has at most 64 lower-case letters, digits, '_', '-' or '.', and starts with a "
            "letter or digit"
        )
    return found


Columns = Annotated[list[str], BeforeValidator(_listed)]
Steps = Annotated[list[Step], BeforeValidator(_steps)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Similarity = Annotated[Annotated[float, Field(gt=0, le=1)] | None, BeforeValidator(_or_off)]
Name = Annotated[str, AfterValidator(_plain_name)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""Stands in columns of 64 bits."""


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
    domain: str | None = Field(None, description="column with the origin: repository, site, topic")
    group: str | None = Field(None, description="column whose equal values never cross a split")
    task: str | None = Field(None, description="column with the task that a row belongs to")
    level: str | None = Field(None, description="column with a difficulty level that people gave")
    template: str | None = Field(None, description="column with the template that a row was made from")
    structure: str | None = Field(None, description="column with a tree: node list, nested list, or brackets")
    factors: Columns = Field(default_factory=list, description="columns that become named factors, or one map column")
    created_at: str | None = Field(None, description="column with the time at which a row came into being")
    unit: Literal["characters", "words"] = Field("words", description="unit of length_input and length_output")
    encoding: str = Field("utf-8", description="encoding of text files")
    renamed: dict[str, str] = Field(
        default_factory=dict,
        description="columns that got a new name since: {new: old}; the table and later sections keep the old one",
    )
    dropped: Columns = Field(default_factory=list, description="columns of earlier versions that come no more")
    on_conflict: Literal["first", "last", "reject"] = Field(
        "reject", description="which row stays when one id comes with two contents; reject drops all of them"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Examples:
        if (self.source is None) == (self.generate is None):
            both = "both are given" if self.source else "neither is given"
            raise ValueError(f"give either 'from' (files) or 'generate' (a procedural data set); {both}")
        return self


class Responses(_Section):
    """Where the record of who solved what comes from."""

    source: str = Field(alias="from", description="file, glob or folder")
    format: Literal["csv", "jsonl", "parquet", "arrow", "lm-eval"] | None = Field(
        None, description="when the ending does not say; lm-eval for lm-evaluation-harness sample logs"
    )
    respondent: str = Field("respondent_id", description="column that names who answered")
    example: str = Field("example_id", description="column that names the example")
    score: str = Field("score", description="column with a score in [0, 1], or true/false")
    attempt: str | None = Field(None, description="column that counts a respondent's attempts at an example")
    family: str | None = Field(None, description="column with the family of related respondents")
    attempted_at: str | None = Field(None, description="column with the time of the attempt")
    period: str | None = Field(None, description="column with the rating period, a whole number")
    metric: str | None = Field(None, description="lm-eval: which metric")
    filter: str | None = Field(None, description="lm-eval: which filter")
    join: str | None = Field(None, description="lm-eval: field of the document that holds the example's id, or 'input'")


class Dynamics(_Section):
    """Where training dynamics that another trainer logged come from: a row an example and epoch."""

    source: str = Field(alias="from", description="file, glob or folder")
    format: Literal["csv", "jsonl", "parquet", "arrow", "cartography"] | None = Field(
        None, description="when the ending does not say; cartography for dynamics_epoch_N.jsonl files of logits"
    )
    example: str = Field("example_id", description="column that names the example")
    epoch: str = Field("epoch", description="column with the pass over the training set, a whole number from 0")
    run: str | None = Field(None, description="column that names the training run; all rows are one run by default")
    position: str | None = Field(None, description="column with the position in training order; epoch by epoch else")
    logits: str | None = Field(None, description="column with a list of logits; gives all figures that are not given")
    probabilities: str | None = Field(None, description="column with a list of class probabilities, instead of logits")
    gold: str | None = Field(None, description="column with the right class, a whole number from 0, for such a list")
    gold_probability: str = Field("gold_probability", description="column with the probability of the right answer")
    correct: str = Field("correct", description="column that says whether the answer was right")
    loss: str = Field("loss", description="column with the loss (nats)")
    margin: str = Field("margin", description="column with the gold logit less the largest other one")
    error_norm: str = Field("error_norm", description="column with the 2-norm of probabilities less one-hot")
    hidden_norm: str = Field("hidden_norm", description="column with the 2-norm of the last layer's input")
    alignment: str = Field("alignment", description="column with the cosine of gradient step and weights")


class Options(_Section):
    """Where the probabilities that models give to the options of multiple-choice questions come from."""

    source: str = Field(alias="from", description="file, glob or folder")
    format: Literal["csv", "jsonl", "parquet", "arrow"] | None = Field(None, description="when the ending does not say")
    respondent: str = Field("respondent_id", description="column that names the model")
    example: str = Field("example_id", description="column that names the example")
    order: str | None = Field(None, description="column that counts the shown orders of the options; one by default")
    permutation: str | None = Field(None, description="column with the option shown at each place; as given by default")
    probabilities: Columns = Field(
        default_factory=lambda: ["probabilities"], description="column with a list, or one column an option, as shown"
    )
    scale: Literal["probabilities", "logprobs", "logits"] = Field("probabilities", description="what these numbers are")
    gold: str | None = Field("gold", description="column with the right option before permutation: number or letter")


class Features(_Section):
    """Where the vectors of one table `features_NAME` come from: a file of yours, or an embedder."""

    source: str = Field("", alias="from", description="file, glob or folder: Parquet, Arrow IPC, or .npy / .npz")
    by: Step | None = Field(None, description="an embedder instead of files, e.g. hashed_tfidf")
    format: Literal["parquet", "arrow", "csv", "jsonl", "npy"] | None = Field(
        None, description="when the ending does not say"
    )
    example: str = Field("example_id", description="column that names the example")
    columns: Columns = Field(
        default_factory=lambda: ["embedding"], description="column with a list, or many columns of numbers"
    )
    ids: str | None = Field(
        None, description=".npy: file with the ids, one a line or a column `example_id`; .npz: name of the ids' array"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Features:
        if bool(self.source) == (self.by is not None):
            both = "both are given" if self.source else "neither is given"
            raise ValueError(f"give either 'from' (files) or 'by' (an embedder); {both}")
        if self.by is not None:
            if further := sorted(self.model_fields_set - {"by", "source"}):
                raise ValueError(f"{further[0]!r} says how to read files and has no place beside 'by'")
            if self.by.name != self.by.method:
                raise ValueError(
                    f"'as' has no place here: the name of the vectors stands above; found {self.by.name!r}"
                )
        return self


class Curriculum(_Section):
    """The order of training."""

    by: str = Field(description="name of a difficulty of this recipe")
    split: str = Field("", description="name of the split whose train rows are ordered; the first one by default")
    fold: int = Field(0, ge=0, description="fold whose train rows are ordered, of a split with several")
    pacing: Step = Field(
        default_factory=lambda: Step(method="competence"), description="how the share of available rows grows"
    )
    arms: list[Literal["curriculum", "random", "anti", "shuffled"]] = Field(
        default_factory=lambda: ["curriculum", "random", "anti", "shuffled"],  # type: ignore[arg-type]
        description="orders to write: the curriculum and its controls",
    )
    passes: float = Field(1.0, gt=0, description="passes over the training rows, in positions of the random arm")
    stages: int = Field(10, ge=1, le=1000, description="stages into which the order is cut")

    @model_validator(mode="after")
    def _distinct(self) -> Curriculum:
        if len(set(self.arms)) != len(self.arms) or not self.arms:
            raise ValueError(f"arms should be one or more different names; found {shown(list(self.arms))}")
        return self


class Optimizer(_Section):
    """AdamW's settings."""

    lr: float = Field(1e-3, gt=0, description="learning rate after the warm-up")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    warmup: Share = Field(0.0, description="share of the steps with a rising learning rate")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="learning rate after the warm-up")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")


class Checkpoints(_Section):
    """When weights are saved and how many are kept."""

    every: int = Field(500, ge=1, description="optimizer steps between checkpoints; the last step always saves")
    keep: int = Field(2, ge=1, description="newest checkpoints kept")


class Train(_Section):
    """A DeepSpeed training run over one curriculum, an arm and a seed a run."""

    model: Step = Field(description="seq2seq, mlp, or package.module:object")
    launcher: Literal["local", "print"] = Field("local", description="start the workers here, or print the command")
    arms: list[str] = Field(default_factory=list, description="arms to train; all of the curriculum's by default")
    seeds: list[Seed] = Field(default_factory=lambda: [0], description="seeds of the weights, a run each")
    ranks: int = Field(1, ge=1, description="worker processes on this host; one a GPU where there are GPUs")
    global_batch: int = Field(64, ge=1, description="positions of the order that one optimizer step takes")
    micro_batch: int = Field(64, ge=1, description="rows that one rank computes at once")
    workers: int = Field(0, ge=0, description="loader processes a rank")
    zero: Literal[0, 1, 2, 3] | None = Field(None, description="ZeRO stage; 0 on CPU and 2 on GPU by default")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto is fp32 on CPU and bf16 on GPU")
    max_steps: int | None = Field(None, ge=1, description="stop early, in optimizer steps")
    optimizer: Optimizer = Field(default_factory=Optimizer, description="AdamW's settings")
    checkpoints: Checkpoints = Field(default_factory=Checkpoints, description="when weights are saved")

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
    metric: Literal["exact_match"] = Field("exact_match", description="what is computed from an answer")
    baseline: str = Field("random", description="arm that the others are compared with, pair by pair")
    cluster: str = Field("", description="column whose values are resampled together; the group by default")
    resamples: int = Field(10_000, ge=100, description="bootstrap resamples behind an interval")


class Checks(_Section):
    """Limits beyond which nothing is published; a share may be written as 0.01 or 1%."""

    rejects: Share = Field(0.01, description="largest share of rejected rows")
    joined: Share = Field(0.98, description="smallest share of responses that must find their example")
    output_not_empty: Share = Field(0.0, description="largest share of rows with an empty output")
    near_duplicates: Similarity = Field(
        0.8,
        description="inputs from this Jaccard similarity of 5-word shingles up count as near-duplicates: measured, and "
        "counted across splits, where no step near_duplicates does it; off for no such check",
    )


class Recipe(_Section):
    """All that a run is asked to do."""

    dataset: Name = Field(description="name under which the tables stand in the store")
    store: str = Field(
        "runs/", min_length=1, description="local folder or object store URL; credentials from the environment"
    )
    examples: Examples = Field(description="where the examples come from")
    responses: Responses | None = Field(None, description="who solved what, if known")
    dynamics: Dynamics | None = Field(None, description="what another trainer logged, if known")
    options: Options | None = Field(None, description="probabilities of multiple-choice options, if known")
    features: Annotated[dict[Name, Features], BeforeValidator(_named)] = Field(
        default_factory=dict, description="vectors by name, e.g. embeddings"
    )
    difficulty: Steps = Field(default_factory=list, description="difficulty estimators, each a step")
    diversity: Steps = Field(default_factory=list, description="diversity measures, each a step")
    splits: Steps = Field(default_factory=list, description="split builders, each a step")
    curriculum: Curriculum | None = Field(None, description="the order of training")
    train: Train | None = Field(None, description="training over that order")
    evaluate: Evaluate | None = Field(None, description="what is measured after training")
    checks: Checks = Field(default_factory=Checks, description="limits beyond which nothing is published")
    seed: Seed = Field(0, description="seed of every random choice but the weights")
    release: bool = Field(False, description="make the tables of a successful run a release")

    def sources(self) -> list[tuple[str, Dynamics | Options | Features]]:
        """Return the tables, beside examples and responses, that come from files, with their sections."""
        found: list[tuple[str, Dynamics | Options | Features | None]] = [
            ("dynamics", self.dynamics),
            ("options", self.options),
            *((f"features_{name}", section) for name, section in self.features.items() if section.source),
        ]
        return [(table, section) for table, section in found if section is not None]

    def embedded(self) -> dict[str, Step]:
        """Return the embedders by the name of their vectors."""
        return {name: section.by for name, section in self.features.items() if section.by is not None}

    @model_validator(mode="after")
    def _names_agree(self) -> Recipe:
        for section in ("difficulty", "diversity", "splits"):
            names = [step.name for step in getattr(self, section)]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise _wrong(section, f"two steps are called {twice[0]!r}", "another name for one of them: 'as: NAME'")
        difficulties, splits = [s.name for s in self.difficulty], [s.name for s in self.splits]
        if self.curriculum:
            if not splits:
                raise _wrong("curriculum", "a curriculum orders the train rows of a split", "a section 'splits'")
            _known("curriculum.by", self.curriculum.by, difficulties)
            _known("curriculum.split", self.curriculum.split or splits[0], splits)
        if self.train:
            if not self.curriculum:
                raise _wrong("train", "training needs an order", "a section 'curriculum'")
            for arm in self.train.arms:
                _known("train.arms", arm, list(self.curriculum.arms))
        if self.evaluate:
            if not splits:
                raise _wrong("evaluate", "an evaluation compares the parts of a split", "a section 'splits'")
            _known("evaluate.split", self.evaluate.split or splits[0], splits)
            if self.evaluate.difficulty:
                _known("evaluate.difficulty", self.evaluate.difficulty, difficulties)
            if self.train and self.curriculum and "baseline" in self.evaluate.model_fields_set:
                _known("evaluate.baseline", self.evaluate.baseline, self.train.arms or list(self.curriculum.arms))
        return self


def _known(path: str, name: str, valid: list[str]) -> None:
    if name not in valid:
        listed = "one of " + ", ".join(valid) if valid else "a name from this recipe, which has none yet"
        raise _wrong(path, f"there is no {name!r}{nearest(name, valid)}", listed)


def _wrong(path: str, what: str, expected: str) -> PydanticCustomError:
    """Build the error of a check over several sections; `explain` reads it back."""
    return PydanticCustomError("recipe", "{path}: {what}", {"path": path, "what": what, "expected": expected})


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
    except IsADirectoryError:
        raise UsageError("this is a folder", where=str(path), expected="a recipe, a YAML file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"the recipe is not UTF-8 (byte {error.start})", where=str(path)) from None
    return parse_recipe(text, where=str(path))


def parse_recipe(text: str, *, where: str = "recipe") -> Recipe:
    """Check a recipe given as YAML text; raises as `load_recipe`."""
    found = strict_yaml.load(text, where=where)
    if not isinstance(found, dict):
        what = "the recipe is empty" if found is None else f"found {shown(found)}"
        raise UsageError(what, where=where, expected="a mapping with the keys 'dataset' and 'examples'")
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
    for feature in data.get("features", {}).values():
        if "by" in feature:
            feature["by"] = _short(feature["by"])
    return strict_yaml.dump(data)


def _short(step: dict[str, Any]) -> Any:
    settings = dict(step.get("settings", {}))
    if step.get("name", step["method"]) != step["method"]:
        settings["as"] = step["name"]
    return {step["method"]: settings} if settings else step["method"]
