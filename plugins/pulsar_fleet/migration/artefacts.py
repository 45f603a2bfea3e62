"""The names of a migration's artefacts: what one step stores and a later one reads."""

from __future__ import annotations

PLACEMENTS = "placements.json"

WAVE_MOVES = "wave-moves.json"
WAVE_TEXT = "wave.md"

STATE = "watch.json"

PLAN = "plan-green.json"

RESERVED = "reserved.json"

BEFORE = "blue-before.json"

UNDONE = "undone.json"

SWITCHED = "switched.json"

INTERLOCKS = "checks.json"

REDIRECT = "redirect.json"

BASIS = "basis.json"

MOVES = "moves.json"
FINDINGS = "findings.json"
WAIVERS = "waivers.json"
FINDINGS_AGAIN = "findings-before-the-switch.json"
WAIVERS_AGAIN = "waivers-before-the-switch.json"
WAVES = "waves.json"
