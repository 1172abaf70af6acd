"""The programs as loops that numba compiles: both threads, and floating point as fast as it allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit, prange

compiled: Final[Callable[..., Any]] = njit(parallel=True, fastmath=True)
sequential: Final[Callable[..., Any]] = njit(fastmath=True)
f32 = np.float32


@compiled
def gelu(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = f32(0.5) * x[i] * f32(math.erfc(-x[i] * f32(0.70710678)))
    return out


@compiled
def gelu_by_tanh(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        a = x[i]
        out[i] = f32(0.5) * a * (f32(1) + math.tanh(f32(0.7978845608) * (a + f32(0.044715) * a * a * a)))
    return out


@compiled
def silu(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = x[i] / (f32(1) + math.exp(-x[i]))
    return out


@compiled
def functions_in_f64(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.sin(x[i]) * math.exp(-x[i] * x[i]) + math.log1p(abs(x[i]))
    return out


@compiled
def powers(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = x[i] ** y[i]
    return out


@compiled
def integer_division(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = (np.uint32(x[i]) % 1000) // 7 + (x[i] >> 3) ^ (x[i] * 31)
    return out


@compiled
def square_roots_by_newton(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        a = x[i] + f32(1)
        r = a
        while abs(r * r - a) > f32(1e-5):
            r = f32(0.5) * (r + a / r)
        out[i] = r
    return out


@sequential
def segment_sum_of_rows(x, segments):
    out = np.zeros((5000, x.shape[1]), f32)
    for i in range(len(x)):
        for j in range(x.shape[1]):
            out[segments[i], j] += x[i, j]
    return out


@sequential
def segment_sum(x, segments):
    out = np.zeros(5000, f32)
    for i in range(len(x)):
        out[segments[i]] += x[i]
    return out


@njit
def segment_max(x, segments):
    out = np.full(5000, f32(-np.inf))
    for i in range(len(x)):
        out[segments[i]] = max(out[segments[i]], x[i])
    return out


@sequential
def histogram(x):
    out = np.zeros(64, f32)
    for i in range(x.size):
        out[min(63, int(x[i] * f32(64)))] += f32(1)
    return out


@sequential
def bincount(x):
    out = np.zeros(100, np.int32)
    for i in range(x.size):
        out[x[i]] += 1
    return out


@compiled
def searchsorted(edges, x):
    out = np.empty(x.size, np.int32)
    for i in prange(x.size):
        out[i] = np.searchsorted(edges, x[i])
    return out


@compiled
def take_along_axis(x, indices):
    out = np.empty(indices.shape, f32)
    for i in prange(indices.shape[0]):
        for j in range(indices.shape[1]):
            out[i, j] = x[i, indices[i, j]]
    return out


@compiled
def map_coordinates(image, y, x):
    out = np.empty_like(y)
    rows, columns = image.shape
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            r, c = math.floor(y[i, j]), math.floor(x[i, j])
            a, b = y[i, j] - f32(r), x[i, j] - f32(c)
            r, c = int(r), int(c)
            total = f32(0)
            for dr in range(2):
                for dc in range(2):
                    if r + dr < rows and c + dc < columns:
                        weight = (a if dr else f32(1) - a) * (b if dc else f32(1) - b)
                        total += weight * image[r + dr, c + dc]
            out[i, j] = total
    return out


@sequential
def page_rank(sources, targets):
    degree = np.zeros(10_000, f32)
    for s in sources:
        degree[s] += f32(1)
    for i in range(degree.size):
        degree[i] = f32(1) / max(degree[i], f32(1))
    rank = np.full(10_000, f32(1e-4))
    for _ in range(20):
        new = np.zeros(10_000, f32)
        shared = rank * degree
        for k in range(sources.size):
            new[targets[k]] += shared[sources[k]]
        rank = f32(0.15 / 10_000) + f32(0.85) * new
    return rank


@compiled
def masked_softmax(x, mask):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        most = f32(-1e9)
        for j in range(x.shape[1]):
            most = max(most, x[i, j] if mask[i, j] < 3 else f32(-1e9))
        total = f32(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp((x[i, j] if mask[i, j] < 3 else f32(-1e9)) - most)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out


@compiled
def logsumexp(x):
    out = np.empty(x.shape[0], f32)
    for i in prange(x.shape[0]):
        most = f32(-np.finfo(f32).max)
        for j in range(x.shape[1]):
            most = max(most, x[i, j])
        total = f32(0)
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - most)
        out[i] = most + math.log(total)
    return out


@compiled
def sums_of_a_triangle(x):
    out = np.empty(x.shape[0], f32)
    for i in prange(x.shape[0]):
        total = f32(0)
        for j in range(i + 1):
            total += x[i, j]
        out[i] = total
    return out


@compiled
def distances(x):
    out = np.empty((x.shape[0], x.shape[0]), f32)
    for i in prange(x.shape[0]):
        for j in range(x.shape[0]):
            total = f32(1e-6)
            for k in range(x.shape[1]):
                total += (x[i, k] - x[j, k]) ** 2
            out[i, j] = math.sqrt(total)
    return out


@sequential
def k_means(x, centers):
    centers = centers.copy()
    for _ in range(10):
        sums = np.zeros_like(centers)
        counts = np.zeros(len(centers), f32)
        for i in range(len(x)):
            nearest, least = 0, f32(3e38)
            for c in range(len(centers)):
                distance = f32(0)
                for k in range(x.shape[1]):
                    distance += (x[i, k] - centers[c, k]) ** 2
                if distance < least:
                    nearest, least = c, distance
            counts[nearest] += f32(1)
            for k in range(x.shape[1]):
                sums[nearest, k] += x[i, k]
        for c in range(len(centers)):
            for k in range(x.shape[1]):
                centers[c, k] = sums[c, k] / (counts[c] + f32(1e-6))
    return centers


@sequential
def cumulative_sum_of_columns(x):
    out = np.empty_like(x)
    out[0] = x[0]
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = out[i - 1, j] + x[i, j]
    return out


@compiled
def cumulative_maximum(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        most = x[i, 0]
        for j in range(x.shape[1]):
            most = max(most, x[i, j])
            out[i, j] = most
    return out


@compiled
def associative_scan(a, b):
    out = np.empty_like(b)
    for i in prange(a.shape[0]):
        total = f32(0)
        for j in range(a.shape[1]):
            total = total * a[i, j] + b[i, j]
            out[i, j] = total
    return out


@sequential
def linear_recurrence(a, b):
    out = np.empty_like(b)
    h = np.zeros(a.shape[1], f32)
    for t in range(a.shape[0]):
        for j in range(a.shape[1]):
            h[j] = h[j] * a[t, j] + b[t, j]
            out[t, j] = h[j]
    return out


@compiled
def convolution(x, kernel):
    out = np.zeros_like(x)
    n, half = x.size, kernel.size // 2
    for i in prange(n):
        total = f32(0)
        for k in range(kernel.size):
            j = i + half - k
            if 0 <= j < n:
                total += x[j] * kernel[k]
        out[i] = total
    return out


@compiled
def depthwise_convolution(x, kernel):
    out = np.zeros_like(x)
    batch, rows, columns, channels = x.shape
    for n in prange(batch * rows):
        b, i = n // rows, n % rows
        for j in range(columns):
            for r in range(3):
                for c in range(3):
                    if 0 <= i + r - 1 < rows and 0 <= j + c - 1 < columns:
                        for k in range(channels):
                            out[b, i, j, k] += x[b, i + r - 1, j + c - 1, k] * kernel[r, c, 0, k]
    return out


@compiled
def average_pooling(x):
    out = np.empty((x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]), f32)
    rows = out.shape[1]
    for n in prange(x.shape[0] * rows):
        b, i = n // rows, n % rows
        for j in range(out.shape[2]):
            for k in range(out.shape[3]):
                pair = x[b, 2 * i, 2 * j, k] + x[b, 2 * i, 2 * j + 1, k]
                other = x[b, 2 * i + 1, 2 * j, k] + x[b, 2 * i + 1, 2 * j + 1, k]
                out[b, i, j, k] = (pair + other) * f32(0.25)
    return out


@compiled
def heat_by_add(x):
    old, new = x.copy(), x.copy()
    for _ in range(50):
        for i in prange(1, x.shape[0] - 1):
            for j in range(1, x.shape[1] - 1):
                around = old[i + 1, j] + old[i - 1, j] + old[i, j + 1] + old[i, j - 1]
                new[i, j] = old[i, j] + f32(0.1) * (around - f32(4) * old[i, j])
        old, new = new, old
    return old


@compiled
def heat_on_a_torus(x):
    rows, columns = x.shape
    old, new = x.copy(), x.copy()
    for _ in range(50):
        for i in prange(rows):
            above, below = (i - 1) % rows, (i + 1) % rows
            for j in range(1, columns - 1):
                around = old[below, j] + old[above, j] + old[i, j + 1] + old[i, j - 1]
                new[i, j] = old[i, j] + f32(0.1) * (around - f32(4) * old[i, j])
            for j in (0, columns - 1):
                beside = old[i, (j + 1) % columns] + old[i, (j - 1) % columns]
                around = old[below, j] + old[above, j] + beside
                new[i, j] = old[i, j] + f32(0.1) * (around - f32(4) * old[i, j])
        old, new = new, old
    return old


@compiled
def burgers(u):
    n = u.size
    old, new = u.copy(), np.empty_like(u)
    for _ in range(50):
        for i in prange(n):
            left = old[i - 1] if i > 0 else old[n - 1]
            right = old[i + 1] if i + 1 < n else old[0]
            drift = f32(0.01) * old[i] * (right - left)
            new[i] = old[i] - drift + f32(0.001) * (left + right - f32(2) * old[i])
        old, new = new, old
    return old


@compiled
def game_of_life(cells):
    rows, columns = cells.shape
    old = np.zeros((rows + 2, columns + 2), np.int32)
    new = np.zeros((rows + 2, columns + 2), np.int32)
    old[1:-1, 1:-1] = cells
    for _ in range(20):
        for i in prange(1, rows + 1):
            for j in range(1, columns + 1):
                count = old[i - 1, j - 1] + old[i - 1, j] + old[i - 1, j + 1] + old[i, j - 1]
                count += old[i, j + 1] + old[i + 1, j - 1] + old[i + 1, j] + old[i + 1, j + 1]
                new[i, j] = (count == 3) | ((old[i, j] == 1) & (count == 2))
        old, new = new, old
    return old[1:-1, 1:-1].astype(f32)


@sequential
def _lorenz(x, y, z):
    return f32(10) * (y - x), x * (f32(28) - z) - y, x * y - f32(8 / 3) * z


@sequential
def _lorenz_step(x, y, z):
    h = f32(0.01)
    half = f32(0.005)
    a, b, c = _lorenz(x, y, z)
    d, e, f = _lorenz(x + half * a, y + half * b, z + half * c)
    g, i, j = _lorenz(x + half * d, y + half * e, z + half * f)
    k, m, n = _lorenz(x + h * g, y + h * i, z + h * j)
    sixth = f32(0.01 / 6)
    two = f32(2)
    x += sixth * (a + two * d + two * g + k)
    y += sixth * (b + two * e + two * i + m)
    return x, y, z + sixth * (c + two * f + two * j + n)


@compiled
def lorenz_by_rows(y):
    out = np.empty_like(y)
    for i in prange(y.shape[1]):
        a, b, c = y[0, i], y[1, i], y[2, i]
        for _ in range(200):
            a, b, c = _lorenz_step(a, b, c)
        out[0, i], out[1, i], out[2, i] = a, b, c
    return out


@compiled
def lorenz_under_vmap(y):
    out = np.empty_like(y)
    for i in prange(y.shape[0]):
        a, b, c = y[i, 0], y[i, 1], y[i, 2]
        for _ in range(200):
            a, b, c = _lorenz_step(a, b, c)
        out[i, 0], out[i, 1], out[i, 2] = a, b, c
    return out


@sequential
def one_lorenz_trajectory(y):
    out = np.empty((1000, 3), f32)
    a, b, c = y[0], y[1], y[2]
    for i in range(1000):
        a, b, c = _lorenz_step(a, b, c)
        out[i, 0], out[i, 1], out[i, 2] = a, b, c
    return out


@njit
def time_warping(a, b):
    row = np.empty(b.size, f32)
    total = f32(0)
    for j in range(b.size):
        total += (a[0] - b[j]) ** 2
        row[j] = total
    for i in range(1, a.size):
        left, diagonal = f32(np.inf), f32(np.inf)
        for j in range(b.size):
            up = row[j]
            left = (a[i] - b[j]) ** 2 + min(min(up, diagonal), left)
            diagonal = up
            row[j] = left
    return row[-1:].reshape(())


@sequential
def shortest_paths(d):
    d = d.copy()
    for k in range(d.shape[0]):
        for i in range(d.shape[0]):
            first = d[i, k]
            for j in range(d.shape[1]):
                d[i, j] = min(d[i, j], first + d[k, j])
    return d


@sequential
def overlapping_boxes(boxes):
    n = boxes.shape[0]
    chosen = np.ones(n, np.bool_)
    for i in range(n):
        if chosen[i]:
            for j in range(i + 1, n):
                overlap = min(boxes[i, 0], boxes[j, 0]) * min(boxes[i, 1], boxes[j, 1])
                if overlap / (max(boxes[i, 0], boxes[j, 0]) + f32(0.1)) > f32(0.8):
                    chosen[j] = False
    return chosen


@njit
def automaton(letters):
    out = np.empty(letters.size, np.int32)
    state = np.int32(0)
    for i in range(letters.size):
        out[i] = state
        state = state + 1 if letters[i] == state % 4 else state * 2 % 97
    return out
