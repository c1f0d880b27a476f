"""The loops of the search, compiled by numba at their first call and kept in its cache beside this file.

Imported when a split is built, since numba takes half a second. What is written as a tuple in the arguments:

bag
    Lines of weighted pieces, for atoms and for compounds. A *pair* is a piece with one of the weights it comes with.
    start (lines + 1), pair (entries), rows (entries: rows of the line that hold the piece), piece (pairs), first
    (pieces + 1: its first pair), value (pairs: the weight), series (2, TERMS + 1: for V and W the factors of the
    binomial series, last the exponent).
state
    sums (2, 3: weight in V, in W and sum of p^a q^(1 - a), of compounds and of atoms); for atoms, then for compounds
    a table (pieces, 5: p, q, p^a q^(1 - a), p^a, q^(1 - a)) and gains (4, pairs: how the sum changes if the pair
    joins V, joins W, leaves V, leaves W).
game
    units (line of atoms, line of compounds, weight of atoms, weight of compounds, rows), atoms (a bag), compounds (a
    bag), state, aim (target, cap, price of an atom divergence above the cap, price of what is above), holders (atoms,
    2: rows of V and W that hold it), filled (2: rows), quota (2), counter (1, uint64).

Weights are multiples of 2^-20, so that sums are exact and what leaves leaves no trace. Objectives are whole steps of
1e-9; the smaller unit wins among equals.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gradatim.tasks.splits.divergent.units import TERMS

_jit: Any = numba.njit(cache=True, nogil=True)

V, W = 0, 1
WIDTH, NEAR, TINY = 5, 0.125, 1e-3
_P, _Q, _TERM, _PA, _QB = range(WIDTH)
_STEPS, _RECOUNT = 1e9, 1024


def _power(x: Any, exponent: Any) -> Any:
    return np.sqrt(x) if exponent == 0.5 else x**exponent


power = _jit(_power)


def _gain(x: Any, w: Any, term: Any, other: Any, series: Any) -> Any:
    """How x^a y^(1 - a) changes if x grows by w (shrinks, below 0); term is x^a y^(1 - a), other is y^(1 - a)."""
    if x <= 0.0:
        return power(w, series[TERMS]) * other if w > 0.0 and other > 0.0 else 0.0
    if term <= 0.0:
        return 0.0
    if x + w <= 0.0:
        return -term
    r = w / x
    if r < -NEAR or r > NEAR:
        return term * (power(1.0 + r, series[TERMS]) - 1.0)
    f = 0.0  # (1 + r)^a - 1 by its series: eight terms leave less than 1e-9 of the term
    for n in range(TERMS - 1, -1, -1):
        f = (1.0 + f) * r * series[n]
    return term * f


gain = _jit(_gain)


def _change(line: Any, start: Any, pair: Any, gains: Any) -> Any:
    """How the sum changes if a line joins or leaves a side, by the column of gains that says so."""
    total = 0.0
    for entry in range(start[line], start[line + 1]):
        total += gains[pair[entry]]
    return total


change = _jit(_change)


def _move(line: Any, side: Any, sign: Any, bag: Any, table: Any, gains: Any) -> Any:
    """Let a line join (sign 1) or leave (-1) a side; returns the change of the sum."""
    start, pair, _, piece, first, value, series = bag
    total = 0.0
    for entry in range(start[line], start[line + 1]):
        k = piece[pair[entry]]
        w = sign * value[pair[entry]]
        before = table[k, _TERM]
        if side == V:
            table[k, _P] += w
            table[k, _PA] = power(table[k, _P], series[V, TERMS]) if table[k, _P] > 0.0 else 0.0
        else:
            table[k, _Q] += w
            table[k, _QB] = power(table[k, _Q], series[W, TERMS]) if table[k, _Q] > 0.0 else 0.0
        p, q, pa, qb = table[k, _P], table[k, _Q], table[k, _PA], table[k, _QB]
        term = pa * qb
        table[k, _TERM] = term
        total += term - before
        for n in range(first[k], first[k + 1]):
            gains[0, n] = gain(p, value[n], term, qb, series[V])
            gains[1, n] = gain(q, value[n], term, pa, series[W])
            gains[2, n] = gain(p, -value[n], term, qb, series[V])
            gains[3, n] = gain(q, -value[n], term, pa, series[W])
    return total


move = _jit(_move)


def _divergence(total: Any, p: Any, q: Any, series: Any) -> Any:
    if p <= 0.0 or q <= 0.0:
        return 0.0
    return 1.0 - total / (power(p, series[V, TERMS]) * power(q, series[W, TERMS]))


divergence = _jit(_divergence)


def _objective(compound: Any, atom: Any, aim: Any) -> Any:
    """Distance from the target and the price of what the atoms differ too much, in steps of 1e-9."""
    far = abs(compound - aim[0])
    if atom > aim[1]:
        far += aim[2] * atom + aim[3] * (atom - aim[1])
    return np.int64(np.floor(far * _STEPS + 0.5))


objective = _jit(_objective)


def _now(game: Any) -> Any:
    sums = game[3][0]
    compound = divergence(sums[0, 2], sums[0, V], sums[0, W], game[2][6])
    atom = divergence(sums[1, 2], sums[1, V], sums[1, W], game[1][6])
    return objective(compound, atom, game[4])


now = _jit(_now)


def _grown(x: Any, w: Any, raised: Any, series: Any) -> Any:
    """(x + w)^a, where raised is x^a."""
    if x + w <= 0.0:
        return 0.0
    r = w / x if x > 0.0 else 1.0
    if r < -TINY or r > TINY:
        return power(x + w, series[TERMS])
    return raised * (1.0 + r * series[0] * (1.0 + r * series[1] * (1.0 + r * series[2])))


grown = _jit(_grown)


def _put(unit: Any, side: Any, sign: Any, game: Any) -> Any:
    """Let a unit join or leave a side."""
    units, atoms, compounds, state, _, holders, filled = game[:7]
    sums = state[0]
    i, j = units[0][unit], units[1][unit]
    sums[0, 2] += move(j, side, sign, compounds, state[3], state[4])
    sums[1, 2] += move(i, side, sign, atoms, state[1], state[2])
    sums[0, side] += sign * units[3][unit]
    sums[1, side] += sign * units[2][unit]
    filled[side] += np.int64(sign) * units[4][unit]
    for entry in range(atoms[0][i], atoms[0][i + 1]):
        holders[atoms[3][atoms[1][entry]], side] += np.int64(sign) * atoms[2][entry]


put = _jit(_put)


def _recount(state: Any) -> Any:
    """Add the sums up anew, against drift."""
    state[0][0, 2] = state[3][:, _TERM].sum()
    state[0][1, 2] = state[1][:, _TERM].sum()


recount = _jit(_recount)


def _draw(counter: Any, n: Any) -> Any:
    """The next whole number below n: splitmix64 over a counter."""
    counter[0] += np.uint64(0x9E3779B97F4A7C15)
    x = counter[0]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.int64(np.float64(x >> np.uint64(11)) * 2.0**-53 * n)


draw = _jit(_draw)


def _allowed(line: Any, joins: Any, start: Any, pair: Any, rows: Any, piece: Any, holders: Any, least: Any) -> Any:
    """Whether a line of atoms may join W, or leave V: each atom of W is to stand in `least` rows of V."""
    for entry in range(start[line], start[line + 1]):
        k = piece[pair[entry]]
        stays = holders[k, V] if joins else holders[k, V] - rows[entry]
        if stays < least and (joins or holders[k, W] > 0):
            return False
    return True


allowed = _jit(_allowed)


def _best(side: Any, joins: Any, places: Any, count: Any, most: Any, m: Any, game: Any, least: Any) -> Any:
    """The best of m drawn units of at most `most` rows to join or leave a side: its place and the objective then.

    Where none of the drawn ones may join, it is the first in the list that may; -1 where there is none. The arrays are
    taken out of their tuples before the loop, since numba counts references at each look into a tuple.
    """
    atom_line, line, atom_weight, weight, size = game[0]
    start, pair, rows, piece, _, _, atom_series = game[1]
    long_start, long_pair, series = game[2][0], game[2][1], game[2][6]
    sums, _, atom_gains, _, gains = game[3]
    aim, holders, counter = game[4], game[5], game[8]
    column = side if joins else side + 2
    gain_of, atom_gain_of = gains[column], atom_gains[column]
    sign = 1.0 if joins else -1.0
    whole, guarded = count <= m, least > 0 and joins == (side == W)
    x, v = sums[0, side], sums[1, side]
    x_raised, v_raised = power(x, series[side, TERMS]), power(v, atom_series[side, TERMS])
    y_raised = power(sums[0, 1 - side], series[1 - side, TERMS])
    u_raised = power(sums[1, 1 - side], atom_series[1 - side, TERMS])
    own, atom_own = series[side], atom_series[side]
    best, unit, lowest = np.int64(-1), np.int64(-1), np.int64(0)
    for turn in range(count if whole else (m + count if joins else m)):
        if turn >= m and not whole:
            if best >= 0:
                break
            i = np.int64(turn - m)
        else:
            i = np.int64(turn) if whole else draw(counter, count)
        one = places[i]
        if size[one] > most:
            continue
        if guarded and not allowed(atom_line[one], joins, start, pair, rows, piece, holders, least):
            continue
        bottom = grown(x, sign * weight[one], x_raised, own) * y_raised
        atom_bottom = grown(v, sign * atom_weight[one], v_raised, atom_own) * u_raised
        compound, atom = 0.0, 0.0
        if bottom > 0.0:
            compound = 1.0 - (sums[0, 2] + change(line[one], long_start, long_pair, gain_of)) / bottom
        if atom_bottom > 0.0:
            atom = 1.0 - (sums[1, 2] + change(atom_line[one], start, pair, atom_gain_of)) / atom_bottom
        value = objective(compound, atom, aim)
        if best < 0 or value < lowest or (value == lowest and one < unit):
            best, unit, lowest = i, one, value
    return best, lowest


best_of = _jit(_best)


def _fill(places: Any, count: Any, members: Any, counts: Any, m: Any, game: Any) -> Any:
    """Add the best unit to the side that is further from its size, until neither can take one more; returns the rest.

    Parameters
    ----------
    places : units, of which the first `count` are unused
    members, counts : units of V and W, and how many they are
    m : candidates to look at each time
    """
    state, filled, quota = game[3], game[6], game[7]
    is_open = np.ones(2, np.bool_)
    steps = 0
    while count > 0 and (is_open[V] or is_open[W]):
        side = V if filled[V] * quota[W] <= filled[W] * quota[V] else W
        if not is_open[side]:
            side = 1 - side
        i, _ = best_of(side, True, places, count, quota[side] - filled[side], m, game, 0)
        if i < 0:
            is_open[side] = False
            continue
        unit = places[i]
        count -= 1
        places[i], places[count] = places[count], unit
        members[side, counts[side]] = unit
        counts[side] += 1
        put(unit, side, 1.0, game)
        steps += 1
        if steps % _RECOUNT == 0:
            recount(state)
    recount(state)
    return count


fill = _jit(_fill)


def _mend(places: Any, count: Any, members: Any, counts: Any, m: Any, game: Any, least: Any) -> Any:
    """Put another unit, or none, in the place of each unit of W with an atom that V holds too seldom."""
    lines, holders, filled, quota = game[0][0], game[5], game[6], game[7]
    start, pair, rows, piece = game[1][0], game[1][1], game[1][2], game[1][3]
    i = 0
    while i < counts[W]:
        unit = members[W, i]
        if allowed(lines[unit], True, start, pair, rows, piece, holders, least):
            i += 1
            continue
        put(unit, W, -1.0, game)
        j, _ = best_of(W, True, places, count, quota[W] - filled[W], m, game, least)
        if j >= 0:
            put(places[j], W, 1.0, game)
            members[W, i], places[j] = places[j], unit
            i += 1
        else:
            counts[W] -= 1
            members[W, i] = members[W, counts[W]]
            places[count] = unit
            count += 1
    return count


mend = _jit(_mend)


def _exchange(
    tries: Any, patience: Any, places: Any, count: Any, members: Any, counts: Any, m: Any, game: Any, least: Any
) -> Any:
    """Exchange a placed unit, V's and W's in turn, for an unused one where the objective falls; returns how many.

    The best of m to leave, then the best of m to join. Ends after `tries`, or `patience` of them without success.
    """
    state, filled, quota = game[3], game[6], game[7]
    done, idle = 0, 0
    for turn in range(tries):
        if idle >= patience or count == 0:
            break
        idle += 1
        side = turn % 2
        before = now(game)
        i, _ = best_of(side, False, members[side], counts[side], filled[side], m, game, least)
        if i < 0:
            continue
        unit = members[side, i]
        put(unit, side, -1.0, game)
        j, value = best_of(side, True, places, count, quota[side] - filled[side], m, game, least)
        if j < 0 or value >= before:
            put(unit, side, 1.0, game)
            continue
        put(places[j], side, 1.0, game)
        members[side, i], places[j] = places[j], unit
        idle = 0
        done += 1
        if done % _RECOUNT == 0:
            recount(state)
    recount(state)
    return done


exchange = _jit(_exchange)
