"""Fourier transforms of every length."""
