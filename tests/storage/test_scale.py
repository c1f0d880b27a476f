"""Scale: memory is bounded by a part, whatever the number of rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
import pyarrow as pa
from gradatim.storage import audit
sys.path.insert(0, {root!r})
from benchmarks.memory import peak_memory
from benchmarks.publish import positions, Store, Wanted, fingerprint
def peak():
    return pa.default_memory_pool().max_memory() / 2**20
dataset = Store.open({folder!r}).dataset("bench")
def publish(name, rows):
    wanted = Wanted(fingerprint(name, 1, "", []), lambda: positions(rows), ordered=True)
    assert dataset.publish("curriculum", [wanted], part_rows=100_000).rows == rows
    return peak()
small = publish("small", 600_000)
large = publish("large", 2_000_000)
print(small, large, peak_memory() / 2**20)
assert len(dataset.parts("curriculum")) >= 20
"""


def test_two_million_positions_take_no_more_memory_than_two_parts(tmp_path: Path) -> None:
    code = CODE.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path / "store"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    small, large, resident = map(float, done.stdout.split()[-3:])
    # Arrow's own peak (MiB) for 3.3 times the rows: a few parts in work and in audit (how many, threads decide), not
    # the 140 MiB that all rows would take
    assert large < 2 * small + 10
    assert large < 110
    assert resident < 900
