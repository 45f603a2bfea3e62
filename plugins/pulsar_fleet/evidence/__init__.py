"""Evidence of a run: everything the records have of it in one file that nobody can change unnoticed."""
