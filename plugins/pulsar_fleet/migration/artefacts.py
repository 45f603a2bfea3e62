"""The names of a migration's artefacts: what one step stores and a later step reads."""

from __future__ import annotations

MOVES = "moves.json"
FINDINGS = "findings.json"
WAIVERS = "waivers.json"
REDIRECT = "redirect.json"
BROKERS = "brokers.json"
WAVES = "waves.json"

CURSOR_TRANSFERS = "cursor-transfers.json"
WAVE_MOVES = "wave-moves.json"
WAVE_TEXT = "wave.md"

GREEN_PLAN = "plan-green.json"
MADE_AGAIN = "made-again.json"
"""Namespace → topics that green's broker has deleted and that are not complete again."""
FINDINGS_BEFORE_CUT_OVER = "findings-before-cut-over.json"
WAIVERS_BEFORE_CUT_OVER = "waivers-before-cut-over.json"
ORIGINAL_SETTINGS = "original-settings.json"
RESERVED_SUBSCRIPTIONS = "reserved.json"
BASELINE = "proof-baseline.json"
COPY_VERDICT = "copy-verdict.json"
COPY_PROOF = "copy-proof"
"""A folder."""
PROOF_SPEED = "proof-speed.json"

CUT_OVER = "cut-over.json"
DRAIN_STATE = "drain-state.json"
DEPARTURE = "departure.json"
MOVEMENT = "movement.json"
"""Where a connection document leads the applications of a group."""
BOTH_WAYS = "both-ways.json"
"""Namespace → what of green listed blue before the run let it replicate back."""
REPOINT_STATE = "repoint-state.json"

ABORTED = "aborted.json"
FAILBACK_CHECKS = "checks.json"
