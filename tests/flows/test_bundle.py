"""A bundle can be checked by anybody who has the data, and by nobody be read for what it leaves out."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from small_recipe import items, write_jsonl

from gradatim.flows.bundle import bibliography, read_bundle, reduced, unnamed, without_models, write_bundle
from gradatim.flows.job import Job
from gradatim.flows.steps import as_function, take_steps
from gradatim.flows.verify import verify_bundle
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import parse_recipe
from gradatim.tasks.core.step import Place

RECIPE = """
dataset: acme-secret
examples: {from: items/, id: id, input: question, output: answer, domain: kind}
responses: {from: answers.jsonl, respondent: who, example: what, score: right}
difficulty: [pass_rate, length]
splits:
  - length: {column: n_steps, train: "<= 6"}
  - leave_one_domain_out: {column: domain, domains: [kind-1, kind-3]}
curriculum: {by: pass_rate}
"""


def run(recipe: Path, *, release: bool = False) -> str:
    job = Job.load(str(recipe))
    dataset = job.place.open()
    based_on = dataset.latest_release()
    versions = take_steps(job, as_function, lambda summary: None)
    if release:
        dataset.release(versions, based_on=based_on.number if based_on else None)
    return str(recipe.parent / "store")


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None], *, sums: bool = True) -> str:
    """Write the bundle again with other files; with `sums` the manifest agrees with them."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    if sums:
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"] = {n: hashlib.sha256(c).hexdigest() for n, c in files.items() if n != "manifest.json"}
        files["manifest.json"] = json.dumps(manifest).encode()
    other = path.with_name("other.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(other)


@pytest.mark.parametrize("name", ["length", "leave_one_domain_out"])
def test_a_bundle_is_verified_from_the_data_alone_and_names_nobody(small: Callable[..., Path], name: str) -> None:
    recipe = small(RECIPE, rows=100)
    store, file = run(recipe), recipe.parent / "split.zip"
    write_bundle(store, None, name, str(file), anonymous=True)
    first = file.read_bytes()
    write_bundle(store, None, name, str(file), anonymous=True, force=True)
    assert file.read_bytes() == first

    _, files = read_bundle(str(file))
    told = b"".join(c if not n.endswith(".parquet") else pl.read_parquet(io.BytesIO(c)).write_csv().encode()
                    for n, c in files.items())  # fmt: skip
    for secret in (b"acme", b"items/", b"answers.jsonl", b"model-0", b"what is", str(recipe.parent).encode()):
        assert secret not in told
    assert b"score:test:model 001" in told
    assert b"author = {" in files["references.bib"]

    # what an anonymous bundle calls by its role has to be called so
    folder = recipe.parent / "for_the_reviewer"
    folder.mkdir()
    (recipe.parent / "items").rename(folder / "examples")
    (recipe.parent / "answers.jsonl").rename(folder / "responses.jsonl")
    verified = verify_bundle(str(file), str(folder))
    assert verified.holds, verified.summary()
    assert "every row and number is the same" in verified.summary().headline
    with pytest.raises(UsageError, match="no responses"):
        verify_bundle(str(file), str(folder / "examples" / "part-0.jsonl"))


def test_what_was_changed_in_data_or_bundle_is_found(small: Callable[..., Path]) -> None:
    recipe = small(RECIPE, rows=100)
    store, file = run(recipe), recipe.parent / "split.zip"
    told = write_bundle(store, None, "length", str(file), anonymous=False)
    assert "gradatim verify" in told.next[0]
    data = str(recipe.parent)
    assert verify_bundle(str(file), data).holds

    def move(files: dict[str, bytes]) -> None:
        split = pl.read_parquet(io.BytesIO(files["split.parquet"]))
        first = (pl.col("strategy") == "length") & (pl.col("example_id") == "q0000")
        buffer = io.BytesIO()
        split.with_columns(pl.when(first).then(pl.lit("test")).otherwise("split").alias("split")).write_parquet(buffer)
        files["split.parquet"] = buffer.getvalue()

    def better(files: dict[str, bytes]) -> None:
        table = pl.read_parquet(io.BytesIO(files["certificate.parquet"]))
        auc = pl.when(pl.col("check") == "shift_auc").then(pl.col("value") - 0.01).otherwise("value")
        buffer = io.BytesIO()
        table.with_columns(auc.alias("value")).write_parquet(buffer)
        files["certificate.parquet"] = buffer.getvalue()

    for change, where in ((move, "length seed 0 fold 0, q0000"), (better, "shift_auc (seed 0 fold 0)")):
        found = verify_bundle(rewritten(file, change), data)
        assert not found.holds
        assert [row[0] for row in found.differences] == [where]
        with pytest.raises(DataRefused, match="not what the manifest says"):
            verify_bundle(rewritten(file, change, sums=False), data)

    rows = items(0, 100)
    rows[7]["question"] += "?"
    write_jsonl(recipe.parent / "items" / "part-0.jsonl", rows)
    found = verify_bundle(str(file), data)
    assert not found.holds
    assert ("row q0007", "content", "another content") in found.differences
    assert "NOT what it says" in found.summary().headline


@pytest.mark.parametrize("anonymous", [False, True])
def test_a_split_that_stands_on_a_release_is_rebuilt_on_it(small: Callable[..., Path], anonymous: bool) -> None:
    recipe = small(
        RECIPE.replace("responses", "# responses")
        .replace("[pass_rate, length]", "[length]")
        .replace("pass_rate", "length"),
        rows=100,
    )
    run(recipe, release=True)
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", items(200, 260))
    text = recipe.read_text().replace('"<= 6"', '"<= 5"')  # rows of six steps are held where they were tested
    recipe.write_text(text, encoding="utf-8")
    store, file = run(recipe), recipe.parent / "split.zip"
    for name in ("length", "leave_one_domain_out"):
        told = write_bundle(store, None, name, str(file), anonymous=anonymous, force=True)
        assert told.facts[2].value == "yes"
        verified = verify_bundle(str(file), str(recipe.parent / "items"))
        assert verified.holds, verified.differences


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no bundle here"):
        read_bundle(str(tmp_path / "none.zip"))
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(DataRefused, match="no bundle"):
        read_bundle(str(tmp_path / "text.zip"))
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.writestr("../evil", "x")
        archive.writestr("manifest.json", "{}")
    with pytest.raises(DataRefused, match=r"'\.\./evil'"):
        read_bundle(str(tmp_path / "out.zip"))
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("manifest.json", "[]")
    with pytest.raises(DataRefused, match="manifest cannot be read"):
        read_bundle(str(tmp_path / "empty.zip"))


def test_names_are_taken_out_and_models_numbered() -> None:
    recipe = parse_recipe(
        "dataset: acme\nstore: s3://acme/x\nexamples: {from: data/acme.jsonl.gz, id: id}\n"
        "responses: {from: acme_results/}\nfeatures: {words: {from: 'acme-*.parquet'}}\nsplits: [random]\n"
    )
    plain = unnamed(recipe)
    assert (plain.examples.source, plain.responses.source) == ("examples.jsonl.gz", "responses/")  # type: ignore[union-attr]
    assert plain.features["words"].source == "features_words/"
    assert "acme" not in plain.model_dump_json()
    checks = [
        "score:test",
        "score:test_ood:b:x",
        "score:test:a",
        "score_gap:b:x",
        "score_gap",
        "tv:output:test",
        "score:test:b:x",
    ]
    found = without_models(pl.DataFrame({"check": checks}))["check"].to_list()
    assert found == [
        "score:test", "score:test_ood:model 002", "score:test:model 001", "score_gap:model 002", "score_gap",
        "tv:output:test", "score:test:model 002",
    ]  # fmt: skip
    assert "Stone" in bibliography(plain)


HOSTILE = """
dataset: x
examples: {from: items/, id: id, input: question, output: answer, domain: kind}
splits:
  - length: {column: n_steps, train: "<= 6"}
"""


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ("responses: {from: SECRET, respondent: who, example: what, score: right}", UsageError, "no responses"),
        ("responses: {from: ../SECRET, respondent: who, example: what, score: right}", UsageError, "no responses"),
        ("responses: {from: items/../../../SECRET, respondent: who, example: what}", UsageError, "no responses"),
        ("responses: {from: ../*, respondent: who, example: what, score: right}", DataRefused, ""),
        ("responses: {from: ~/.ssh, respondent: who, example: what, score: right}", UsageError, "no responses"),
        ("responses: {from: 's3://bucket/x', respondent: who, example: what}", DataRefused, "at an address"),
        ("responses: {from: .., respondent: who, example: what, score: right}", DataRefused, "no file or folder"),
        ("features: {w: {from: items/part-0.jsonl, ids: SECRET}}", None, ""),
        ("difficulty: [{length: {of: question, unit: tokens, tokenizer: SECRET}}]", UsageError, "no file"),
        ("curriculum: {by: length}\ndifficulty: [length]\ntrain: {model: 'os.path:join'}", None, ""),
    ],
)  # fmt: skip
def test_a_strangers_recipe_reads_nothing_outside_the_data_folder_and_runs_no_code(
    small: Callable[..., Path], tmp_path: Path, changed: str, error: type[Exception] | None, message: str
) -> None:
    """Each hostile recipe fails on what lies in the data folder, or is taken without its part."""
    from gradatim.flows.verify import _located, _recipe

    small(RECIPE, rows=2)
    folder = tmp_path / "given"
    folder.mkdir()
    (tmp_path / "items").rename(folder / "items")
    secret = tmp_path / "secret.json"
    secret.write_text('{"id": 1}')
    recipe = HOSTILE + changed.replace("SECRET", str(secret) if "../SECRET" not in changed else "secret.json")

    def names() -> str:
        found, base = _located(_recipe(recipe.encode(), "length", "x.zip"), str(folder))
        assert found.train is None
        assert found.curriculum is None
        assert base == str(folder)
        Job(found, "x", Place("unused", "x", base, 0, "")).difficulty  # noqa: B018  (finds the files of settings)
        return found.model_dump_json()

    if error is None:
        told = names()
        assert str(tmp_path) not in told
        assert ".." not in told
    elif message:
        with pytest.raises(error, match=message):
            names()
    else:  # a glob starts at the folder
        assert '"source":"*"' in names()


def test_a_bundle_that_would_fill_the_memory_or_has_strange_tables_is_refused(small: Callable[..., Path]) -> None:
    recipe = small(RECIPE, rows=60)
    store, file = run(recipe), recipe.parent / "split.zip"
    write_bundle(store, None, "length", str(file), anonymous=True)

    def zeros(files: dict[str, bytes]) -> None:
        files["rows.parquet"] = bytes(20 << 20)

    bomb = rewritten(file, zeros)
    with zipfile.ZipFile(bomb) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(DataRefused, match=r"rows\.parquet holds 20,971,520 bytes, packed in"):
        read_bundle(bomb)

    def table(name: str, frame: pl.DataFrame | bytes) -> Callable[[dict[str, bytes]], None]:
        def change(files: dict[str, bytes]) -> None:
            buffer = io.BytesIO()
            if isinstance(frame, pl.DataFrame):
                frame.write_parquet(buffer)
            files[name] = frame if isinstance(frame, bytes) else buffer.getvalue()

        return change

    data = str(recipe.parent)
    for change, said in (
        (table("rows.parquet", pl.DataFrame({"example_id": ["a"]})), "'content_hash' is missing"),
        (table("rows.parquet", pl.DataFrame({"example_id": [1], "content_hash": ["a"]})), "'example_id' is Int64"),
        (table("split.parquet", b"PAR1 no table PAR1"), "cannot be read"),
        (table("certificate.parquet", b""), "cannot be read"),
        (table("recipe.yaml", b"\xff\xfe"), "no UTF-8"),
        (table("recipe.yaml", HOSTILE.replace("length", "threshold").encode()), "not of one split"),
        (lambda files: files.pop("base.parquet"), "no base.parquet"),
    ):
        with pytest.raises(DataRefused, match=said):
            verify_bundle(rewritten(file, change), data)


@pytest.mark.parametrize(("step", "kept"), [("{using: embedding, features: words}", True), ("{column: input}", False)])
def test_vectors_stay_in_a_bundle_where_near_duplicates_are_found_by_them(step: str, kept: bool) -> None:
    recipe = parse_recipe(
        "dataset: x\nexamples: {from: x.jsonl, id: id, input: q}\nfeatures: {words: {from: words.parquet}}\n"
        f"diversity: [{{near_duplicates: {step}}}, vendi]\nsplits: [random, length]\n"
    )
    plain = reduced(recipe, "random")
    assert [one.method for one in plain.diversity] == ["near_duplicates"]
    assert ("words" in plain.features) is kept
