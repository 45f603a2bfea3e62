"""What a run tells people: Markdown for the UI, the same facts as JSON in the artefacts."""
