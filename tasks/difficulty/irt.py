"""IRT 1PL to 4PL: difficulty and ability on one scale, right also where respondents saw different examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.item_response.calibration import (
    Calibration,
    calibrate,
    choose,
    item_settings,
    reliability,
)
from gradatim.tasks.difficulty.item_response.linking import described, link, moved_notes
from gradatim.tasks.difficulty.item_response.pictures import irt_pictures, link_picture
from gradatim.tasks.difficulty.item_response.tables import (
    flags,
    item_parameters,
    notes_of,
    respondent_table,
    warnings_of,
)
from gradatim.tasks.difficulty.reliability import spearman_brown
from gradatim.tasks.difficulty.responses import Parts, Responses, find_parts, to_cells, without
from gradatim.tasks.difficulty.result import Difficulty, build, method_name, unanswered

BOCK = (
    "R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an EM "
    "algorithm. Psychometrika 46, 443-459."
)
ERRORS = (
    "T. A. Louis (1982). Finding the observed information matrix when using the EM algorithm. Journal of the Royal "
    "Statistical Society B 44, 226-233."
)
JOINT = (
    "R. J. Mislevy (1986). Bayes modal estimation in item response models. Psychometrika 51, 177-195. "
    "L. Tierney, J. B. Kadane (1986). Accurate approximations for posterior moments and marginal densities. Journal of "
    "the American Statistical Association 81, 82-86."
)
OWN_SCALE = "on a scale of its own: comparable only within part {} of {}"


class IRTConfig(Config):
    """Settings of `irt`."""

    model: Literal["1pl", "2pl", "3pl", "4pl"] = Field(
        "1pl",
        description="one discrimination for all examples, or one an example, with a lower, with a lower and an upper "
        "asymptote",
    )
    slope: Literal["free", "common", "fixed"] = Field(
        "free", description="1pl: estimate the common discrimination, or fix it to 1; 3pl, 4pl: also common to all"
    )
    guessing: float | Literal["1/K"] | None = Field(
        None,
        description="given chance of a right guess, held fixed; 1/K takes it from the column `choices`; by default 0, "
        "estimated in a 3pl and 4pl",
    )
    choices: str | None = Field(None, description="column of the examples with the number of choices of each")
    priors: Literal["auto", "none", "weak"] = Field(
        "auto",
        description="log a, b and asymptotes; auto is weak for a 2pl below 250 respondents, wherever there are "
        "asymptotes, and in joint fits, else none",
    )
    estimator: Literal["auto", "marginal", "joint"] = Field(
        "auto",
        description="auto: joint from 5,000 examples or 2 million respondents x examples (20 million below 200 "
        "examples) on, else marginal",
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")
    splits: int = Field(5, ge=0, le=100, description="random halves behind the reliability; 0 takes standard errors")
    disconnected: Literal["refuse", "flag", "separate"] = Field(
        "refuse",
        description="what to do when parts of the data share neither respondents nor examples: refuse; fit them as one "
        "and flag; fit each on a scale of its own",
    )
    anchor: Literal["current"] | int | None = Field(
        None, description="put the difficulties onto the scale of this release's: current, or its number"
    )

    @model_validator(mode="after")
    def _agree(self) -> IRTConfig:
        if self.model == "2pl" and self.slope != "free":
            raise ValueError("slope: a 2pl has one free slope an example; use model 1pl")
        given = self.guessing not in (None, 0)
        if self.model == "1pl" and self.priors == "weak" and not given:
            raise ValueError("priors: the 1pl has none; use model 2pl, or leave priors out")
        if isinstance(self.guessing, float) and not 0 <= self.guessing < 0.98:
            raise ValueError("guessing: a chance of at least 0 and below 0.98, as 0.25")
        if self.guessing == "1/K" and self.choices is None:
            raise ValueError("guessing: 1/K needs the column of the examples with K; name it in choices")
        return self


def _cost(rows: int, width: int) -> Cost:
    width = max(width, 1)
    cells = float(rows) * width
    reading = 4e-7 * cells
    if choose("auto", width, rows)[0] == "joint":
        return Cost(1.0 + reading + 3e-7 * cells + 1e-5 * rows, 3e8 + 45 * cells + 1500.0 * rows)
    nodes = float(np.clip(5.4 * rows**0.5, 61, 3841))
    passes = 40 + 10 * 12  # the fit, and ten looser ones of half the respondents
    return Cost(0.5 + reading + passes * (6e-8 * rows * nodes + 6e-9 * cells) + 2e-6 * cells, 2e8 + 60 * cells)


@register(
    "difficulty",
    "irt",
    config=IRTConfig,
    needs=(
        "responses.respondent_id",
        "responses.example_id",
        "responses.score",
        "examples.{choices}",
    ),
    revision=2,
    cost=_cost,
    source="R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an "
    "EM algorithm. Psychometrika 46, 443-459",
)
def run(tables: Mapping[str, pl.DataFrame], config: IRTConfig, seed: int = 0) -> Difficulty:
    """Item response theory (1PL to 4PL): from who solved what, also where not everyone tried everything.

    Parameters
    ----------
    tables : mapping
        ``responses`` (respondent_id, example_id, score in [0, 1]); optionally ``respondents`` (respondent_id, family),
        for families; ``examples`` (example_id, and the column `choices` where it is named), to list those that nobody
        answered; ``anchor`` (`item_parameters` of an earlier calibration), on whose scale the result is put.
    config : IRTConfig
    seed : int
        Seed of the random halves behind the reliability.

    Returns
    -------
    Difficulty
        value is the location b in logits on the scale where abilities are N(0, 1), or that of the anchor; n counts
        respondents. Where a curve has a lower asymptote g, b is where half of the way from g to its top is reached.

    Raises
    ------
    DataRefused, UsageError
        As `responses.to_cells`, `fit.fit_irt` and `joint.fit_joint`; also where parts of the data are not connected, or
        fewer than two examples are common with the anchor.

    Notes
    -----
    Marginal maximum likelihood, or from 5,000 examples (or 2 million respondents x examples, 20 million with fewer than
    200 examples) on joint maximum a posteriori; cells are kept sparse. The choice and its reason are in the notes.
    """
    responses = to_cells(tables["responses"])
    parts = find_parts(responses.cells)
    made, excluded, warnings = _calibrate(tables, responses, parts, config)
    found, how, grown = reliability(made[0], seed, config.splits)
    trust = found, how, grown
    lacking = responses.missing > 0
    return _assemble(tables, config, seed, made, excluded, warnings, trust, rows_without_score=lacking)


def _calibrate(
    tables: Mapping[str, pl.DataFrame], responses: Responses, parts: Parts, config: IRTConfig
) -> tuple[list[Calibration], pl.DataFrame | None, list[str]]:
    """Fit the responses, or each of their unconnected parts; also examples that no fit holds, and warnings."""
    plain: dict[str, Any] = {"model": config.model, "slope": config.slope, "priors": config.priors}

    def fitted(some: Responses) -> Calibration:
        own = item_settings(some.examples, config.guessing, config.choices, tables.get("examples"))
        return calibrate(some, config.estimator, {**plain, **own})

    if parts.count == 1:
        return [fitted(responses)], None, []
    apart = responses.examples[int(np.flatnonzero(parts.item)[0])]
    others = ", ".join(f"{s:,}" for s in parts.sizes[1:4]) + (", ..." if parts.count > 4 else "")
    what = (
        f"the responses fall into {parts.count} parts that share neither respondents nor examples "
        f"({parts.sizes[0]:,} examples in the largest, {others} in others, e.g. {apart!r})"
    )
    if config.disconnected == "refuse":
        raise DataRefused(
            what,
            where="difficulty irt",
            expected="one connected part: difficulties of parts without a common respondent cannot be compared",
            remedy="drop the small parts, add respondents that answered both, or set disconnected: flag (one fit, as "
            "if their respondents were equally able) or separate (a scale a part)",
        )
    if config.disconnected == "flag":
        warnings = [what + "; they are only comparable if their respondents are equally able"]
        return [fitted(responses)], None, warnings
    made, lost = [], []
    for number in range(parts.count):
        items, people = np.flatnonzero(parts.item == number), np.flatnonzero(parts.respondent == number)
        some = responses.part(items, people)
        try:
            made.append(fitted(some))
        except DataRefused as error:
            if number == 0:
                raise
            reason = f"a part of its own that cannot be fitted: {error.what}"
            lost.append(pl.DataFrame({"example_id": some.examples, "reason": [reason] * len(some.examples)}))
    warnings = [what + "; each is on a scale of its own, and ranks across parts mean nothing"]
    return made, pl.concat(lost) if lost else None, warnings


def _assemble(
    tables: Mapping[str, pl.DataFrame],
    config: IRTConfig,
    seed: int,
    made: list[Calibration],
    excluded: pl.DataFrame | None,
    warnings: list[str],
    trust: tuple[float | None, str, pl.DataFrame | None],
    *,
    rows_without_score: bool,
) -> Difficulty:
    """Lay the calibrations (several where parts have scales of their own) out as one result."""
    name = method_name(
        "irt", config.model_dump(exclude={"bins", "splits", "disconnected", "anchor"}), IRTConfig().model_dump()
    )
    ids = [name_ for one in made for name_ in one.responses.examples.to_list()]
    flag = np.concatenate([flags(one) for one in made])
    if len(made) > 1:
        part = np.repeat(np.arange(len(made)), [one.responses.cells.items for one in made])
        told = [OWN_SCALE.format(k + 1, len(made)) for k in range(len(made))]
        flag = np.array([f"{told[k]}; {f}" if f else told[k] for k, f in zip(part, flag, strict=True)], dtype=object)
    first = made[0]
    for one in made:
        warnings = warnings + [w for w in warnings_of(one) if w not in warnings]
    items = item_parameters(made, name)
    people = respondent_table(made, tables.get("respondents"))
    # where every row has a score, nobody needs to look for examples without one among millions of rows
    asked = tables if rows_without_score else {key: table for key, table in tables.items() if key != "responses"}
    without_value = unanswered(asked, ids if excluded is None else [*ids, *excluded["example_id"]])
    found = build(
        method=name,
        title=f"irt {config.model}" + (" with slope 1" if config.slope == "fixed" else ""),
        ids=ids,
        value=np.concatenate([one.fit.b for one in made]),
        raw=np.concatenate([one.fit.b for one in made]),
        scale="logit",
        error=np.concatenate([one.fit.se_b for one in made]),
        n=np.concatenate([one.responses.cells.answered for one in made]),
        flag=flag.tolist(),
        bins=config.bins,
        reliability=trust[0],
        warnings=warnings,
        item_parameters=items,
        respondents=people,
        excluded=without_value if excluded is None else pl.concat([without_value, excluded]).sort("example_id"),
        notes=_notes(made, trust[1]),
        source=" ".join([BOCK, JOINT if first.joint else ERRORS]),
        refit=partial(_leave_out, dict(tables), config, seed, made if len(made) == 1 else None, trust[0]),
    )
    return _anchored(_pictured(found, made, trust), tables, config, len(made))


def _notes(made: list[Calibration], how: str) -> dict[str, Cell]:
    notes = notes_of(made[0], how)
    if len(made) > 1:
        notes["facts are of"] = "the largest part"
        notes["scales"] = len(made)
    return notes


def _pictured(
    found: Difficulty, made: list[Calibration], trust: tuple[float | None, str, pl.DataFrame | None]
) -> Difficulty:
    """Add the pictures of the (largest) calibration."""
    first = made[0]
    name = found.method
    items, people = item_parameters([first], name), respondent_table([first], None)

    def scores(rows: np.ndarray) -> np.ndarray:
        few, stay = np.unique(rows, return_inverse=True)
        return first.responses.cells.take(few).matrix()[:, stay]

    return replace(
        found,
        pictures=irt_pictures(items, people, scores=scores, reliability=trust[2], overall=trust[0]),
    )


def _anchored(found: Difficulty, tables: Mapping[str, pl.DataFrame], config: IRTConfig, scales: int) -> Difficulty:
    """Put a result onto the scale of ``anchor``, through the examples that both hold."""
    if config.anchor is None or found.item_parameters is None:
        return found
    if scales > 1:
        raise DataRefused(
            f"{scales} parts on scales of their own cannot be put onto one scale by one line",
            where="difficulty irt: anchor",
            expected="one connected part",
            remedy="drop the small parts, or set disconnected: flag",
        )
    if "anchor" not in tables:
        if config.anchor == "current":
            return replace(found, notes={**found.notes, "linked to": "nothing: no release holds this scale yet"})
        raise UsageError(
            f"there are no item parameters of release {config.anchor} at hand",
            where="difficulty irt: anchor",
            expected="a table `anchor`, which a recipe's run takes from the release",
            remedy="in a notebook, link two results: linked(new, old)",
        )
    flagged = found.table.select("example_id", "flag")
    new = found.item_parameters.join(flagged, on="example_id", how="left")
    line = link(new, tables["anchor"], "mean_sigma")
    pictures = {k: v for k, v in found.pictures.items() if k == "reliability"}
    moved_items, moved_people = line.apply(found.item_parameters), found.respondents
    if moved_people is not None:
        moved_people = line.apply(moved_people)
        pictures = {**irt_pictures(moved_items, moved_people), **pictures}
    drawn = partial(link_picture, line.items, line.slope, line.intercept)
    pictures["link"] = Picture("Common examples on the anchor's scale: where the line fits and which moved.", drawn)
    return replace(
        found,
        table=line.apply(found.table),
        item_parameters=moved_items,
        respondents=moved_people,
        notes={**moved_notes(found.notes, line), **described(line, f"anchor {config.anchor}")},
        warnings=(*found.warnings, *line.notes),
        pictures=pictures,
    )


def _leave_out(
    tables: Mapping[str, pl.DataFrame],
    config: IRTConfig,
    seed: int,
    made: list[Calibration] | None,
    reliable: float | None,
    name: str,
) -> Difficulty:
    """Estimate again without a respondent or a family: from where the fit stands, where it is one fit.

    The reliability is then that of all, stepped down to those who stay by the formula of Spearman and Brown.
    """
    kept, gone = without(tables["responses"], tables.get("respondents"), name)
    rest = {**tables, "responses": kept}
    if made is None:
        return run(rest, config, seed)
    all_ = made[0].responses.respondents
    rows = np.flatnonzero(all_.is_in(list(gone)).to_numpy())
    if not len(rows):  # had no score at all
        return run(rest, config, seed)
    parts = find_parts(made[0].responses.cells.among(np.setdiff1d(np.arange(len(all_)), rows))[0])
    if parts.count > 1:
        return run(rest, config, seed)
    one = made[0].without(rows)
    share = 1 - len(rows) / len(all_)
    stepped = None if reliable is None else spearman_brown(reliable, share)
    trust = stepped, "that of all respondents, stepped down", None
    return _assemble(rest, config, seed, [one], None, [], trust, rows_without_score=True)
