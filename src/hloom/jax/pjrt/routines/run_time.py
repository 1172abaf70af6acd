"""Functions of the cpu run time that the plug-in calls; the run time is a separately compiled module."""

from __future__ import annotations

from typing import Final

from hloom.cpu.runtime.routines import gang, memory

take: Final = memory.hloom_take.external()
give: Final = memory.hloom_give.external()
gang_parts: Final = gang.hloom_gang_parts.external()
take_gang: Final = gang.hloom_gang_take.external()
wait_for_gang: Final = gang.hloom_gang_wait.external()
leave_gang: Final = gang.hloom_gang_leave.external()
run_gang: Final = gang.hloom_gang_run.external()
