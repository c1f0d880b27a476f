"""How far difficulties agree: rank correlation of each pair on the examples that both know."""

from __future__ import annotations

import polars as pl


def agreement(table: pl.DataFrame) -> pl.DataFrame:
    """Correlate the ranks of every two methods.

    Parameters
    ----------
    table : polars.DataFrame
        Columns example_id, method, value of the table `difficulty`.

    Returns
    -------
    polars.DataFrame
        left, right (methods, left before right), spearman in [-1, 1] (null where one is constant or fewer than three
        examples are common), n; sorted by left, right.

    Notes
    -----
    One join a pair. Source: C. Spearman (1904). The proof and measurement of association between two things.
    """
    methods = table["method"].unique().sort().to_list()
    frames = {name: table.filter(pl.col("method") == name).select("example_id", "value") for name in methods}
    rows = []
    for index, left in enumerate(methods):
        for right in methods[index + 1 :]:
            # sorted, so that the sums behind the correlation do not depend on the order of the rows
            both = frames[left].join(frames[right], on="example_id", suffix="_right").drop_nulls().sort("example_id")
            found = both.select(pl.corr("value", "value_right", method="spearman")).item() if len(both) > 2 else None
            rows.append((left, right, None if found is None or found != found else float(found), len(both)))
    schema = {"left": pl.String, "right": pl.String, "spearman": pl.Float64, "n": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")
