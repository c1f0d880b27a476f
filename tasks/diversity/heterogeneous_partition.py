"""Partition of examples over clients with a chosen heterogeneity of their domains (federated domain generalisation)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import random_bits
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.environments import as_text
from gradatim.tasks.diversity.result import Diversity

SOURCE = "R. Bai et al. (2024). Benchmarking algorithms for federated domain generalization"
MOST_CLIENTS = 10_000
_SHOWN = 50
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class HeterogeneousPartitionConfig(Config):
    """Settings of `heterogeneous_partition`."""

    domain: str = Field("domain", description="column of examples with the domains")
    clients: int = Field(10, ge=1, le=MOST_CLIENTS, description="number of clients")
    mixing: float = Field(
        0.1, ge=0, le=1, description="lambda: 0 keeps domains apart, 1 gives every client the same mix"
    )


def main_clients(sizes: ArrayLike, clients: int) -> NDArray[np.bool_]:
    """Say which clients are a domain's own: shape (clients, domains), before any mixing.

    Parameters
    ----------
    sizes : array-like of int, shape (domains,)
        Rows of each domain, one or more.
    clients : int

    Returns
    -------
    numpy.ndarray of bool
        With as many clients as domains or more, each client has one domain, and further clients go to the domain with
        the most rows a client; with fewer, each domain has one client, the smallest so far, domains taken by size.
    """
    rows = np.asarray(sizes, dtype=np.int64)
    own = np.zeros((clients, len(rows)), dtype=np.bool_)
    if len(rows) <= clients:
        count = np.zeros(len(rows), dtype=np.int64)
        for client in range(clients):
            domain = client if client < len(rows) else int(np.argmax(rows / count))
            own[client, domain] = True
            count[domain] += 1
        return own
    held = np.zeros(clients, dtype=np.int64)
    for domain in np.argsort(-rows, kind="stable"):
        client = int(np.argmin(held))
        own[client, domain] = True
        held[client] += rows[domain]
    return own


def partition_counts(sizes: ArrayLike, clients: int, mixing: float) -> Integers:
    """Return how many rows of each domain each client gets: shape (clients, domains); columns sum to `sizes`.

    Shares are ``(1 - mixing) / (clients of the domain)`` for the domain's own clients plus ``mixing / clients`` for
    all; fractions go to the largest remainders, of equal ones to the earlier client.
    """
    rows = np.asarray(sizes, dtype=np.int64)
    if clients < 1 or not 0 <= mixing <= 1 or (rows < 1).any() or not len(rows):
        raise UsageError(
            f"{clients} clients, mixing {mixing}, sizes {rows.tolist()[:10]}",
            expected="1 client or more, a mixing from 0 to 1, domains of one row or more",
        )
    own = main_clients(rows, clients)
    share = (1 - mixing) * own / own.sum(axis=0) + mixing / clients
    exact = np.round(rows * share, 9)  # .1 + .2 is .3
    counts: Integers = np.floor(exact).astype(np.int64)
    for domain in range(len(rows)):
        lacking = int(rows[domain] - counts[:, domain].sum())
        # the shares sum to 1 and no part is below its floor: what is lacking is less than a row a client
        counts[np.argsort(-(exact - counts)[:, domain], kind="stable")[:lacking], domain] += 1
    return counts


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.05 + rows * 1.5e-6, bytes=5e7 + rows * 300)


@register(
    "diversity",
    "heterogeneous_partition",
    config=HeterogeneousPartitionConfig,
    needs=("examples.{domain}",),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def heterogeneous_partition(
    tables: Mapping[str, pl.DataFrame], config: HeterogeneousPartitionConfig, seed: int
) -> Diversity:
    """Partition over clients whose mixes of domains are as different as `mixing` says, each example once.

    Each row's `cluster` is its client and its `value` the share of its domain among the client's rows. Statistics:
    ``partition_heterogeneity``, the mean total variation of a client's mix of domains from that of all (0: all the
    same; weighted by rows), ``partition_rows`` of each client and of each domain at it. Which rows of a domain a client
    gets is drawn by hash.
    """
    where = "diversity heterogeneous_partition"
    examples = tables["examples"]
    rows = pl.DataFrame(
        {"example_id": examples["example_id"].cast(pl.String), "domain": as_text(examples, config.domain, where)}
    )
    known = rows.drop_nulls("domain")
    if known.is_empty():
        raise DataRefused(
            f"column {config.domain!r} has no value in any of {len(rows):,} rows", where=where, expected="domains"
        )
    sizes = known.group_by("domain").len("rows").sort("domain")
    counts = partition_counts(sizes["rows"].to_numpy(), config.clients, config.mixing)
    table = _table(known, sizes["domain"].to_list(), counts, seed)
    held = counts.sum(axis=1)
    filled = held > 0
    mix, whole = counts[filled] / held[filled][:, None], counts.sum(axis=0) / counts.sum()
    apart = np.abs(mix - whole).sum(axis=1) / 2
    mean = ordered_sum(apart * held[filled]) / len(known)
    statistics = [Statistic("all", "partition_heterogeneity", mean, len(known))]
    for client in range(config.clients):
        name = f"client={client}"
        statistics.append(Statistic(name, "partition_rows", float(held[client]), int(held[client])))
        statistics += [
            Statistic(
                name, "partition_rows", float(counts[client, i]), int(held[client]), reference=f"{config.domain}={d}"
            )
            for i, d in enumerate(sizes["domain"].to_list())
            if counts[client, i]
        ]
    parameters = {**config.model_dump(mode="json"), "seed": seed}
    warnings = []
    if len(known) < len(rows):
        warnings.append(f"{len(rows) - len(known):,} rows have no {config.domain} and were left out")
    if not filled.all():
        warnings.append(f"{int((~filled).sum())} of {config.clients} clients get no row")
    shown = sizes["domain"].to_list()[:12]
    listed = tuple((i, int(held[i]), *counts[i, : len(shown)].tolist()) for i in range(min(config.clients, _SHOWN)))
    return Diversity(
        method="heterogeneous_partition",
        statistics=statistics_table(statistics, parameters),
        table=table,
        main="partition_heterogeneity",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "clients": Picture(
                "Share of each domain among a client's rows", lambda: _plot(counts, sizes["domain"].to_list())
            )
        },
        tables=(SummaryTable("Rows of each client", ("client", "rows", *shown), listed),),
    )


def _table(known: pl.DataFrame, domains: list[str], counts: Integers, seed: int) -> pl.DataFrame:
    """Deal the rows of each domain, in the order of a hash, to the clients in turn."""
    held = np.maximum(counts.sum(axis=1), 1)
    parts = []
    drawn = known.with_columns(bits=pl.Series(random_bits(known["example_id"], seed, "heterogeneous partition")))
    dealt = drawn.sort("domain", "bits", "example_id")
    start = 0
    for i in range(len(domains)):
        size = int(counts[:, i].sum())
        client = np.repeat(np.arange(len(counts)), counts[:, i])
        parts.append(
            dealt[start : start + size].select(
                "example_id", cluster=pl.Series(client), value=pl.Series(counts[client, i] / held[client])
            )
        )
        start += size
    schema = polars_schema("diversity")
    found = pl.concat(parts).with_columns(
        method=pl.lit("heterogeneous_partition"),
        nearest_id=pl.lit(None, pl.String),
        nearest_similarity=pl.lit(None, pl.Float64),
    )
    return found.select(pl.col(name).cast(kind) for name, kind in schema.items()).sort("example_id")


def _plot(counts: Integers, domains: list[str]) -> Any:
    from gradatim.tasks.core import charts

    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [
        {"client": str(client), "domain": domain, "share": float(share[client, i])}
        for client in range(min(len(counts), _SHOWN))
        for i, domain in enumerate(domains[:_SHOWN])
    ]
    return charts.heatmap(pl.DataFrame(rows), x="client", y="domain", value="share", title="Domains of each client")
