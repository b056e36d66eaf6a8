"""Random numbers from the counter-based generator that the paper's synthetic cohorts were drawn with.

The paper drew them with JAX, whose default generator is Threefry-2x32 with 20 rounds. These few lines give the same
numbers (to the last bits of single precision), so that the experiment has the paper's rows without requiring JAX.

References
----------
J. Salmon, M. Moraes, R. Dror, D. Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv

Words = NDArray[np.uint32]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_KEY_INJECTIONS = 5


def key_of(seed: int) -> Words:
    """Return the key, two words, of a seed below 2³²."""
    return np.array([0, seed], dtype=np.uint32)


def encrypt(key: Words, first: Words, second: Words) -> tuple[Words, Words]:
    """Return the two words that the cipher makes of each pair of words (counters) under a key."""
    schedule = (key[:1], key[1:], key[:1] ^ key[1:] ^ _PARITY)
    first, second = first + schedule[0], second + schedule[1]
    for injection in range(1, _KEY_INJECTIONS + 1):
        for bits in _ROTATIONS[(injection - 1) % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(bits)) | (second >> np.uint32(32 - bits)))
        first = first + schedule[injection % 3]
        second = second + schedule[(injection + 1) % 3] + np.uint32(injection)
    return first, second


def words(key: Words, n: int) -> Words:
    """Return n words: the counters 0, …, n − 1 (and a 0 if n is odd), first half paired with second half, encrypted."""
    counters = np.append(np.arange(n, dtype=np.uint32), np.zeros(n % 2, dtype=np.uint32))
    first, second = np.split(counters, 2)
    return np.concatenate(encrypt(key, first, second))[:n]


def split(key: Words, n: int = 2) -> list[Words]:
    """Return n new keys."""
    return list(words(key, 2 * n).reshape(n, 2))


def uniform(key: Words, n: int) -> NDArray[np.float32]:
    """Return n numbers in [0, 1): 23 random bits as the fraction of a single-precision number in [1, 2), less 1."""
    one = np.float32(1)
    return ((words(key, n) >> np.uint32(9)) | one.view(np.uint32)).view(np.float32) - one


def normal(key: Words, n: int) -> NDArray[np.float64]:
    """Return n standard normal numbers, by inversion."""
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    symmetric = np.maximum(uniform(key, n) * (np.float32(1) - lowest) + lowest, lowest)
    return np.asarray(np.sqrt(2) * erfinv(symmetric.astype(np.float64)))


def exponential(key: Words, n: int) -> NDArray[np.float64]:
    """Return n standard exponential numbers, by inversion."""
    return np.asarray(-np.log1p(-uniform(key, n).astype(np.float64)))
