"""Weights of the estimator, fitted on 5,967 files of 128 kinds against the exact counts of ``o200k_base``.

Tokens for each thing that `everlong.tokens.estimate` counts, in its order. Do not edit by hand.
"""

from __future__ import annotations

ASCII_WEIGHTS = (
    0.8920,  # runs
    1.7206,  # numbers
    0.5355,  # spaced_numbers
    0.3486,  # long_numbers
    0.3383,  # punctuation
    -0.2864,  # long_punctuation
    0.4842,  # closers
    -0.4688,  # joins
    0.0969,  # capitals
    0.1189,  # long_words
    0.3119,  # clusters
    0.5146,  # long_clusters
    0.4667,  # rare_letters
    1.0621,  # escapes
)

WIDE_WEIGHTS = (
    -0.1642,  # latin_letters
    0.0717,  # greek_letters
    0.0999,  # cyrillic_letters
    0.3398,  # hebrew_letters
    0.2470,  # arabic_letters
    0.5033,  # indic_letters
    0.5714,  # southeast_letters
    0.2809,  # hangul_letters
    1.8890,  # sign_letters
    2.5896,  # mark_letters
    0.0873,  # symbol_letters
    0.8040,  # kana_letters
    0.7680,  # ideograph_letters
    0.9686,  # fullwidth_letters
    2.2321,  # emoji_letters
    2.3828,  # latin_words
    1.7486,  # greek_words
    0.9307,  # cyrillic_words
    0.4053,  # hebrew_words
    0.6040,  # arabic_words
    0.0000,  # indic_words
    0.0000,  # southeast_words
    1.4006,  # hangul_words
    1.7832,  # ukrainian
    -0.0832,  # devanagari
    -0.1108,  # tamil
    -0.0928,  # thai
    -0.4040,  # vietnamese
    -0.1816,  # georgian
    1.2273,  # typographic
    0.4753,  # box
    -0.4040,  # cjk_punctuation
    -0.3376,  # katakana
    0.1727,  # long_wide_words
    -0.8080,  # letter_to_wide
    -0.8080,  # wide_to_letter
)
