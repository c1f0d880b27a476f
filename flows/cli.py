"""The command line. Exit codes: 0 done, 1 crashed, 2 wrong use, 3 data refused, 4 try again."""

from __future__ import annotations

import json
import math
import shutil
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.exceptions

from gradatim.schemas.errors import GradatimError
from gradatim.schemas.summary import Summary

app = typer.Typer(
    name="gradatim",
    help="Difficulty- and diversity-aware curation of training data: measure, split, order, train, prove.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeFile = Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe file (YAML).")]
StoreOption = Annotated[str | None, typer.Option("--store", help="Store to use instead of the recipe's.")]
DataOption = Annotated[
    str | None, typer.Option("--data", help="Folder that the recipe's relative data paths start from.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's log and full tracebacks.")]
DatasetOption = Annotated[str | None, typer.Option("--dataset", help="Dataset, where the store holds several.")]
StoreFolder = Annotated[str, typer.Option("--store", help="Folder or URL of the store.")]


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:]
    try:
        code = app(args=arguments, prog_name="gradatim", standalone_mode=False)
    except GradatimError as error:
        _tell(error, "--json" in arguments)
        code = error.exit_code
    except typer.Abort:
        print("stopped", file=sys.stderr)
        code = 1
    except typer.exceptions.TyperException as error:
        error.show()
        code = 2
    except BrokenPipeError:
        code = 0
    except Exception as error:
        if "--verbose" in arguments or "-v" in arguments:
            traceback.print_exc()
        _tell(error, "--json" in arguments)
        code = 1
    sys.exit(code or 0)


def _tell(error: BaseException, as_json: bool) -> None:
    kind = {2: "wrong use", 3: "data refused", 4: "try again"}.get(getattr(error, "exit_code", 1), "crashed")
    text = str(error) if isinstance(error, GradatimError) else f"{type(error).__name__}: {error}"
    if as_json:
        details = {"kind": kind, "what": text}
        if isinstance(error, GradatimError):
            details |= {
                "what": error.what,
                "where": error.where,
                "expected": error.expected,
                "do": error.remedy,
            }
        print(json.dumps({"error": details}, ensure_ascii=False))
    else:
        print(f"{kind}: {text}", file=sys.stderr)
        if not isinstance(error, GradatimError):
            print("  do        run it again with --verbose for the traceback", file=sys.stderr)


def emit(summary: Summary, as_json: bool) -> None:
    """Print what a command found, for people or as JSON."""
    if as_json:
        _print_json(summary.to_dict())
        return
    from gradatim.tasks.reporting.terminal import render_terminal

    width = min(shutil.get_terminal_size((120, 24)).columns, 160)
    print(render_terminal([summary], width=width, color=sys.stdout.isatty(), details=True).rstrip("\n"))


def _print_json(data: Any) -> None:
    print(json.dumps(_finite(data), ensure_ascii=False, indent=2, default=str, allow_nan=False))


def _finite(data: Any) -> Any:
    """Put null for NaN and infinities, which JSON has no word for."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(version("gradatim"))
        raise typer.Exit


@app.callback()
def _first(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


# --- from a file to a recipe


@app.command()
def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File, glob or folder with your examples.")],
    responses: Annotated[str | None, typer.Option("--responses", help="Who solved what: file or folder.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write the recipe.")] = "recipe.yaml",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing recipe.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at the columns of a file and write a recipe for it.

    Example: gradatim init items.jsonl --responses lm_eval_results/
    """
    from gradatim.flows.first_steps import write_recipe

    written = write_recipe(file, responses, Path(output), force=force)
    emit(written, as_json)


@app.command()
def check(recipe: RecipeFile, store: StoreOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Try a recipe against its data and its store, without running it.

    Example: gradatim check recipe.yaml
    """
    from gradatim.flows.first_steps import check_recipe

    result = check_recipe(recipe, store, data)
    emit(result, as_json)


@app.command()
def plan(recipe: RecipeFile, store: StoreOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print the steps of a recipe: what is reused, how long it takes, how much memory it needs.

    Example: gradatim plan recipe.yaml
    """
    from gradatim.flows.plan import plan_recipe

    result = plan_recipe(recipe, store, data)
    emit(result, as_json)


@app.command()
def methods(
    area: Annotated[
        str | None, typer.Argument(help="difficulty, diversity, split, pacing, model, dataset or reader.")
    ] = None,
    file: Annotated[str | None, typer.Option("--for", help="List what this file can use, recommended first.")] = None,
    responses: Annotated[str | None, typer.Option("--responses", help="Who solved what: file or folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods there are: what each does, needs and rests on.

    Example: gradatim methods --for items.jsonl
    """
    from gradatim.flows.first_steps import list_methods

    result = list_methods(area, file, responses)
    emit(result, as_json)


# --- running


@app.command()
def run(
    recipe: RecipeFile,
    store: StoreOption = None,
    data: DataOption = None,
    release: Annotated[bool | None, typer.Option("--release/--no-release", help="Make the tables a release.")] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run all that a recipe asks for: ingest, measure, split, order, train, evaluate, report.

    Example: gradatim run recipe.yaml
    """
    _run("pipeline", recipe, as_json, verbose, store=store, data=data, release=release)


@app.command()
def curate(
    recipe: RecipeFile,
    store: StoreOption = None,
    data: DataOption = None,
    release: Annotated[bool | None, typer.Option("--release/--no-release", help="Make the tables a release.")] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run the part of a recipe that comes before training.

    Example: gradatim curate recipe.yaml --release
    """
    _run("curate", recipe, as_json, verbose, store=store, data=data, release=release)


@app.command()
def train(
    recipe: RecipeFile,
    arm: Annotated[str | None, typer.Option("--arm", help="Train this arm only.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="Workers, instead of the recipe's.")] = None,
    store: StoreOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train on the curricula of the newest versions, in exactly their order.

    A run that was interrupted goes on at its last checkpoint.

    Example: gradatim train recipe.yaml --arm curriculum
    """
    _run("train", recipe, as_json, verbose, store=store, data=data, arm=arm, ranks=ranks)


@app.command()
def evaluate(
    recipe: RecipeFile,
    store: StoreOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Evaluate the trained runs in and out of distribution.

    Example: gradatim evaluate recipe.yaml
    """
    _run("evaluate", recipe, as_json, verbose, store=store, data=data)


@app.command()
def serve(
    recipe: RecipeFile,
    cron: Annotated[str, typer.Option("--cron", help="When to run.")] = "0 3 * * *",
    store: StoreOption = None,
    data: DataOption = None,
    port: Annotated[int, typer.Option("--port", help="Port of the server and its UI.")] = 4200,
    verbose: VerboseOption = False,
) -> None:
    """Start a Prefect server with its UI and a deployment that runs the recipe on a schedule.

    Example: gradatim serve recipe.yaml --cron "0 3 * * *"
    """
    from gradatim.flows.serving import serve_recipe

    serve_recipe(recipe, cron=cron, store=store, data=data, port=port, verbose=verbose)


def _run(flow: str, recipe: str, as_json: bool, verbose: bool, **parameters: Any) -> None:
    from gradatim.flows.local import run_flow

    results = run_flow(flow, recipe, quiet=as_json, verbose=verbose, **parameters)
    if as_json:
        _print_json(results)


# --- looking at what there is


@app.command()
def log(store: StoreFolder = "runs/", dataset: DatasetOption = None, as_json: JsonOption = False) -> None:
    """List the releases and the newest versions of each table.

    Example: gradatim log --store runs/
    """
    from gradatim.flows.looking import log_of

    result = log_of(store, dataset)
    emit(result, as_json)


@app.command()
def show(
    reference: Annotated[str, typer.Argument(metavar="TABLE[@VERSION]", help="e.g. splits@12, or splits@current.")],
    store: StoreFolder = "runs/",
    dataset: DatasetOption = None,
    rows: Annotated[int, typer.Option("--rows", "-n", help="Rows to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show a table version: its rows, counts, fingerprints, parents.

    Example: gradatim show difficulty@current
    """
    from gradatim.flows.looking import show_table

    result = show_table(store, dataset, reference, rows)
    emit(result, as_json)


@app.command()
def paths(
    reference: Annotated[str, typer.Argument(metavar="TABLE[@VERSION]", help="e.g. splits@12.")],
    store: StoreFolder = "runs/",
    dataset: DatasetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the plain Parquet files of a table version, for any other reader.

    Example: gradatim paths splits@12
    """
    from gradatim.flows.looking import paths_of

    found = paths_of(store, dataset, reference)
    if as_json:
        _print_json(found)
    else:
        print("\n".join(found))


@app.command()
def compare(
    splits: Annotated[list[str] | None, typer.Argument(metavar="[SPLIT]...", help="Splits; all by default.")] = None,
    store: StoreFolder = "runs/",
    dataset: DatasetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set splits side by side: sizes, shift, leakage and gaps over their seeds and folds, beside the random controls.

    Example: gradatim compare length mcd --store runs/
    """
    from gradatim.flows.looking import compare_of

    result = compare_of(store, dataset, splits or [])
    emit(result, as_json)


@app.command()
def audit(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the folder of a run.")],
    store: StoreFolder = "runs/",
    dataset: DatasetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that a training run consumed its curriculum in exactly the order of the manifest.

    Example: gradatim audit scan-length-random-0
    """
    from gradatim.flows.looking import audit_of

    result = audit_of(store, dataset, run)
    emit(result.summary(), as_json)
    if not result.holds:
        raise typer.Exit(3)


# --- a split in one file


@app.command()
def bundle(
    split: Annotated[str, typer.Argument(metavar="SPLIT", help="Split, as its recipe calls it.")],
    store: StoreFolder = "runs/",
    dataset: DatasetOption = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="File to write; SPLIT.zip by default.")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Leave out the names of the data set, its files and of models.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a split into one file that anybody can check: ids, recipe, certificate, bibliography, checksums; no text.

    Example: gradatim bundle length --anonymous
    """
    from gradatim.flows.bundle import write_bundle

    result = write_bundle(store, dataset, split, output, anonymous=anonymous, force=force)
    emit(result, as_json)


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="BUNDLE", help="File that 'gradatim bundle' wrote.")],
    data: Annotated[
        str | None,
        typer.Option("--data", help="File or folder of the examples, or folder with all files of the recipe."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a bundle's split and compute every number again, with neither store nor network.

    Example: gradatim verify length.zip --data items.jsonl
    """
    from gradatim.flows.verify import verify_bundle

    result = verify_bundle(file, data)
    emit(result.summary(), as_json)
    if not result.holds:
        raise typer.Exit(3)


if __name__ == "__main__":
    main()
