"""The names of a migration's artefacts: what one step stores and a later one reads."""

from __future__ import annotations

PLACEMENTS = "cursor-transfers.json"

WAVE_MOVES = "wave-moves.json"
WAVE_TEXT = "wave.md"

STATE = "drain-state.json"

PLAN = "plan-green.json"

RESERVED = "reserved.json"

BEFORE = "original-settings.json"

ABORTED = "aborted.json"

CUT_OVER = "cut-over.json"

INTERLOCKS = "checks.json"

REDIRECT = "redirect.json"

BASIS = "proof-baseline.json"

MOVES = "moves.json"
FINDINGS = "findings.json"
WAIVERS = "waivers.json"
FINDINGS_AGAIN = "findings-before-cut-over.json"
WAIVERS_AGAIN = "waivers-before-cut-over.json"
WAVES = "waves.json"
