"""Settings that every split strategy shares."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gradatim.tasks.core.registry import Config

Match = Literal["difficulty", "length"]


class SplitConfig(Config):
    """Shares, groups, seeds and controls of a split; `lists` says that a strategy reads columns of lists too."""

    lists: ClassVar[bool] = False
    validation: float = Field(0.1, ge=0, lt=1, description="share of the in-distribution rows for validation")
    test: float = Field(0.1, gt=0, lt=1, description="share of the in-distribution rows for test")
    validation_ood: float = Field(0.0, ge=0, lt=1, description="share of the out-of-distribution rows for validation")
    keep_together: tuple[str, ...] | None = Field(
        None, description="columns whose equal values never cross a split; 'group' where there is one; [] for none"
    )
    stratify: str | None = Field(
        None, description="column whose values have the same share in train, validation and test; places can then move"
    )
    folds: int = Field(
        1,
        ge=1,
        le=100,
        description="cuts of the in-distribution rows, each with 1/folds of them for test, each row once",
    )
    balance: bool = Field(
        False, description="equal training sizes in all folds of a strategy; rows beyond are excluded"
    )
    seeds: int = Field(1, ge=1, le=1000, description="number of splits, with the seeds seed, seed + 1, ...")
    controls: bool = Field(True, description="also build NAME.random and, where there is a difficulty, NAME.matched")
    difficulty: str = Field("", description="method whose bins are matched; the first by name where there are several")
    match: tuple[Match, ...] | None = Field(
        None, min_length=1,
        description="what NAME.matched is matched on: difficulty, length; by default both, or difficulty alone where "
        "fewer than half of test_ood would have a counterpart",
    )  # fmt: skip

    @field_validator("keep_together", "match", mode="before")
    @classmethod
    def _shared_one_or_more(cls, found: Any) -> Any:
        # a validator of the same name in a strategy's settings would take this one's place
        return (found,) if isinstance(found, str) else found

    @model_validator(mode="after")
    def _leaves_train(self) -> SplitConfig:
        if self.validation + self.test_share >= 1:
            raise ValueError(f"validation {self.validation} + test {self.test_share:g} leave nothing for train")
        return self

    def place_of(self, column: str) -> str:
        """Show where the settings name a column, for the error that there is none; nothing by default."""
        return ""

    @property
    def test_share(self) -> float:
        """Share of the in-distribution rows that are test: `test`, or 1 / `folds` where there are several."""
        return self.test if self.folds == 1 else 1 / self.folds
