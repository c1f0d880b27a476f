"""What a run is about: a recipe, resolved against the plug-ins, its data and its store."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Recipe, Step, load_recipe
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.core.step import Method, Place


@dataclass(frozen=True)
class Job:
    """A recipe on its way to be run; make one with `Job.load`.

    Attributes
    ----------
    recipe : Recipe
    file : str
        The recipe's file, for errors.
    place : Place
        Store, dataset, data folder and seed.
    """

    recipe: Recipe
    file: str
    place: Place

    @classmethod
    def load(cls, recipe: str, store: str | None = None, data: str | None = None) -> Job:
        """Read and resolve a recipe.

        Parameters
        ----------
        recipe : str
            Path of the recipe.
        store : str, optional
            Store to use instead of the recipe's; a relative folder starts from the current one.
        data : str, optional
            Folder that relative data paths start from, instead of the recipe's own.

        Raises
        ------
        UsageError
            For anything in the recipe that cannot work, before anything runs.
        """
        found = load_recipe(recipe)
        base = Path(data) if data is not None else Path(recipe).parent
        if not base.is_dir():
            raise UsageError(f"there is no folder {str(base)!r}", where="data", remedy="give the folder of the data")
        place = Place(
            location=store or found.store,
            dataset=found.dataset,
            base=str(base.resolve()),
            seed=found.seed,
            recipe_hash=value_hash(found.model_dump(mode="json", by_alias=True)),
        )
        job = cls(found, str(recipe), place)
        _ = job.embedders, job.difficulty, job.diversity, job.splits, job.pacing, job.model, job.generator
        return job

    @cached_property
    def embedders(self) -> tuple[Method, ...]:
        """The recipe's embedders, each by the name of its vectors."""
        return tuple(
            replace(self.method("embedding", f"features.{name}.by", step), name=name)
            for name, step in self.recipe.embedded().items()
        )

    @cached_property
    def difficulty(self) -> tuple[Method, ...]:
        """The recipe's estimators; empty where it names none and the default applies."""
        found: list[Method] = []
        for method in self._methods("difficulty", "difficulty", self.recipe.difficulty):
            earlier = [one.name for one in found]
            for name in method.of:
                if name not in earlier:
                    raise UsageError(
                        f"there is no earlier difficulty {name!r}{nearest(name, earlier)}",
                        where=f"{method.where}.{method.plugin.name}.of",
                        expected="one of " + (", ".join(earlier) or "(none stands before it)"),
                    )
            if getattr(method.config, "of", None) == [] and "difficulty" in method.reads():
                method = replace(method, config=method.config.model_copy(update={"of": earlier}))
            found.append(self._with_vectors(method))
        return tuple(found)

    def _with_vectors(self, method: Method) -> Method:
        """Take the recipe's only vectors, or all of them, where a method reads some and names none.

        A method that can read texts instead (it has a setting `column`) reads texts where the recipe has no vectors or
        several, where its column is named, and where `using` says so or nothing. One whose settings say that it
        `compares` nothing does without.
        """
        settings = re.findall(r"features_{(\w+)}", " ".join(method.plugin.needs))
        for setting in settings:
            value, names = getattr(method.config, setting), list(self.recipe.features)
            if value:
                continue
            if method.area != "difficulty" and "column" in type(method.config).model_fields:
                texts = "column" in method.config.model_fields_set
                if texts or len(names) != 1 or getattr(method.config, "using", "embedding") != "embedding":
                    continue
            if len(names) != 1 and not getattr(method.config, "compares", True):
                continue
            if not names or (len(names) > 1 and not isinstance(value, tuple)):
                raise UsageError(
                    f"{method.plugin.name} needs vectors" if not names else "which vectors?",
                    where=f"{method.where}.{method.plugin.name}.{setting}",
                    expected="one of " + (", ".join(names) or "the recipe's section 'features', which is not there"),
                )
            taken = tuple(names) if isinstance(value, tuple) else names[0]
            method = replace(method, config=method.config.model_copy(update={setting: taken}))
        return method

    @cached_property
    def diversity(self) -> tuple[Method, ...]:
        """The recipe's measures, and that of near-duplicates which `checks` asks for."""
        named = tuple(map(self._with_vectors, self._methods("diversity", "diversity", self.recipe.diversity)))
        recipe, threshold = self.recipe, self.recipe.checks.near_duplicates
        has_text = recipe.examples.generate is not None or recipe.examples.input is not None
        if threshold is None or not (recipe.splits and has_text) or _alike(named):
            return named
        taken = {method.name for method in named}
        name = "near_duplicates" if "near_duplicates" not in taken else "checks.near_duplicates"
        step = Step(method="near_duplicates", name=name, settings={"threshold": threshold})
        return (*named, self.method("diversity", "checks.near_duplicates", step))

    @property
    def alike(self) -> tuple[str, ...]:
        """Names of the measures whose near-duplicates are counted across splits."""
        return _alike(self.diversity) if self.recipe.splits else ()

    @property
    def keeps_alike(self) -> bool:
        """Whether near-duplicates stay together: where a step of the recipe finds them, not the check alone."""
        return any(step.method == "near_duplicates" for step in self.recipe.diversity) and bool(self.alike)

    @cached_property
    def splits(self) -> tuple[Method, ...]:
        """The recipe's strategies."""
        return tuple(map(self._with_vectors, self._methods("split", "splits", self.recipe.splits)))

    @cached_property
    def pacing(self) -> Method | None:
        """The curriculum's pacing."""
        curriculum = self.recipe.curriculum
        return self.method("pacing", "curriculum.pacing", curriculum.pacing) if curriculum else None

    @cached_property
    def generator(self) -> Method | None:
        """The procedural data set, where there is one."""
        step = self.recipe.examples.generate
        return self.method("dataset", "examples.generate", step) if step else None

    @cached_property
    def model(self) -> Method | None:
        """The model recipe; None without training and for a user's own."""
        train = self.recipe.train
        if train is None or ":" in train.model.method:
            return None
        return self.method("model", "train.model", train.model)

    @property
    def trained_split(self) -> str:
        """Name of the split that the curriculum orders."""
        curriculum = self.recipe.curriculum
        return (curriculum.split if curriculum else "") or self.recipe.splits[0].name

    @property
    def evaluated_split(self) -> str:
        """Name of the split that the evaluation reads."""
        evaluate = self.recipe.evaluate
        return (evaluate.split if evaluate else "") or self.trained_split

    @property
    def evaluated_difficulty(self) -> str:
        """Name of the difficulty whose bins the evaluation reads."""
        evaluate, curriculum = self.recipe.evaluate, self.recipe.curriculum
        return (evaluate.difficulty if evaluate else "") or (curriculum.by if curriculum else "")

    @property
    def arms(self) -> list[str]:
        """Arms that are trained."""
        train, curriculum = self.recipe.train, self.recipe.curriculum
        return [*(train.arms or (curriculum.arms if curriculum else ()))] if train else []

    def method(self, area: str, path: str, step: Step) -> Method:
        """Resolve one step; `path` is its place in the recipe."""
        where = f"{self.file}: {path}"
        plugin, config = resolve(area, step, where=where)
        found = {
            setting: self._file(getattr(config, setting), f"{where}.{step.method}.{setting}", folder=folder)
            for settings, folder in ((config.paths, False), (config.folders, True))
            for setting in settings
        }
        return Method(area, step.name, plugin, config.model_copy(update=found), where)

    def _file(self, path: str | None, where: str, *, folder: bool) -> str | None:
        """Find a file or folder that a setting names, from the data folder."""
        if path is None:
            return None
        found, kind = Path(self.place.base, path), "folder" if folder else "file"
        if not (found.is_dir() if folder else found.is_file()):
            near = nearest(found.name, [p.name for p in found.parent.glob("*")]) if found.parent.is_dir() else ""
            expected = f"a {kind}, its path from {self.place.base}"
            raise UsageError(f"there is no {kind} {path!r}{near}", where=where, expected=expected)
        return str(found)

    def _methods(self, area: str, section: str, steps: list[Step]) -> tuple[Method, ...]:
        return tuple(self.method(area, f"{section}[{index}]", step) for index, step in enumerate(steps))


def _alike(methods: tuple[Method, ...]) -> tuple[str, ...]:
    return tuple(method.name for method in methods if method.plugin.name == "near_duplicates")
