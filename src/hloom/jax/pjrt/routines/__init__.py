"""The plug-in's native code: functions of PJRT, and what they share, as emitters."""
