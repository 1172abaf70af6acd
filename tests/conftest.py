"""What all tests share: how hypothesis draws."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# In CI the same examples are drawn every time, so that a red run can be repeated; by hand new ones are.
# Deadlines are off because the machines that run the tests are shared.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("hand", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "hand")
